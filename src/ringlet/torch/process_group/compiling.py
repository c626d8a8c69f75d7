"""What ``torch.compile`` must leave alone.

While a compiled module runs, PyTorch tries to compile every Python function that is called: those of the group too,
which C++ calls for DDP's buckets. They are not made of tensor operations, and a group is opaque to the compiler.
"""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

from torch._C._dynamo import eval_frame

Class = TypeVar("Class", bound=type)

_SKIP = eval_frame._FrameAction.SKIP


def never_compiled(kind: Class) -> Class:
    """Run the methods of a class, and all that they call, as plain Python."""
    for member in vars(kind).values():
        if isinstance(member, FunctionType):
            eval_frame.set_code_exec_strategy(member.__code__, eval_frame._FrameExecStrategy(_SKIP, _SKIP))
    return kind
