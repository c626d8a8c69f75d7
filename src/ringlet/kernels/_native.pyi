# The compiled module's functions follow ringlet.kernels.contract.Kernels, which types them for all callers.
from typing import Any

def __getattr__(name: str) -> Any: ...
