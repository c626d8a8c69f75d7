"""``python -m ringlet.launch.called FOLDER``: a rank's side of ``ringlet.run``: load the function, call it, write its
result."""

from __future__ import annotations

import json
import linecache
import runpy
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from ringlet.comm import environments
from ringlet.errors import CommunicationError
from ringlet.io import encoding
from ringlet.launch.function import SCRIPT_NAME


def main() -> None:
    """Call the function that the folder describes."""
    folder = Path(sys.argv[1])
    world = environments.detect()
    if world is None:
        raise CommunicationError(
            "this module is started by ringlet.run as a rank; no launcher is found in the environment"
        )
    where = json.loads((folder / "function.json").read_text(encoding="utf-8"))
    sys.path[:] = where["path"]
    function = _find(where)
    arguments, keywords = encoding.load(folder / "arguments"), encoding.load(folder / "keywords")
    result = function(*arguments, **keywords)
    encoding.save(result, folder / f"result{world.rank}", f"the result of rank {world.rank}")


def _find(where: dict[str, Any]) -> Any:
    if where["kind"] == "module":
        found: Any = import_module(where["module"])
    elif where["kind"] == "file":
        found = _Namespace(runpy.run_path(where["file"], run_name=SCRIPT_NAME))
    else:
        found = _Namespace(_compiled(where))
    for part in where["name"].split("."):
        found = getattr(found, part)
    return found


def _compiled(where: dict[str, Any]) -> dict[str, Any]:
    """The names that the function's own text defines; its lines are kept for tracebacks."""
    source, name = where["source"], f"<source of {where['name']}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": SCRIPT_NAME}
    namespace |= {alias: import_module(module) for alias, module in where["imports"].items()}
    exec(compile(source, name, "exec"), namespace)  # noqa: S102  the caller's own text, written by it a moment ago
    return namespace


class _Namespace:
    """Names as attributes."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.__dict__.update(names)


if __name__ == "__main__":
    main()
