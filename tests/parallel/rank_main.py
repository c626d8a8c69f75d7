"""What every rank of a test job runs: connect, call one function of a checks file, leave its result as JSON.

    python rank_main.py CHECKS.py FUNCTION RESULT_DIRECTORY ARGUMENTS_AS_JSON SECONDS

Should the harness itself be killed, the rank ends by its own alarm, with a trace of where it was waiting.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from ringlet.comm.world import abort_on_exception, connect


def load_function(path: str, name: str) -> Any:
    """The function ``name`` of the file ``path``, whose neighbours it may import."""
    sys.path.insert(0, str(Path(path).parent))
    specification = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return getattr(module, name)


def main() -> None:
    path, name, directory, arguments, seconds = sys.argv[1:]
    atexit.register(gc.freeze)  # the last one called: as in ``ringlet.launch.worker``
    faulthandler.enable()
    faulthandler.dump_traceback_later(float(seconds), exit=True)
    communicator = connect()
    abort_on_exception(communicator)
    function = load_function(path, name)
    gc.freeze()  # frameworks stay to the end: collections look at what the function makes
    result = function(communicator, **json.loads(arguments))
    target = Path(directory) / f"{communicator.rank}.json"
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(result), encoding="utf-8")
    partial.rename(target)
    communicator.barrier()  # nobody leaves while another still needs its memory or its connection
    communicator.close()
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
