"""``ringlet.run``: call a function on new ranks and bring back what each returns. No pickle is involved.

Ranks find the function by its name: in its module, in the script that calls (which is loaded under another name than
``__main__``), or, where there is no file as in a notebook, by its source text. Arguments and results are files; see
``io.encoding``. ``python -m ringlet.launch.function FOLDER`` is a rank's side: load the function, call it, write its
result.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import inspect
import json
import linecache
import runpy
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from ringlet.comm import environments
from ringlet.errors import CommunicationError, RankFailedError, UsageError
from ringlet.io import encoding
from ringlet.launch.messages import STDOUT, is_rank
from ringlet.launch.plan import LaunchPlan

SCRIPT_NAME = "__ringlet_main__"
"""``__name__`` of a script while ranks load it."""


def run(
    function: Callable[..., Any],
    *arguments: Any,
    num_workers: int = 2,
    timeout: float | None = None,
    launcher: str = "auto",
    **keywords: Any,
) -> list[Any]:
    """Call ``function(*arguments, **keywords)`` on ``num_workers`` new ranks of this machine; their results by rank.

    The function may use ``ringlet.init()`` and all collectives. Arguments and results are JSON values and NumPy arrays.
    A script that calls this must do so under ``if __name__ == "__main__":``. What ranks print is passed on; if one
    raises, all are ended and :class:`RankFailedError` carries its traceback; likewise after ``timeout`` seconds.
    """
    world = environments.detect()
    if world is not None and not (world.size == 1 and is_rank()):  # a single one may as well start others
        raise UsageError(
            f"ringlet.run starts workers, but this process is itself worker {world.rank} of {world.size}. In a script, "
            f'call it under `if __name__ == "__main__":`, so that workers which load the script do not call it'
        )
    from ringlet.launch.starting import execute  # which ranks that load this module have no use for

    where = describe(function)
    with tempfile.TemporaryDirectory(prefix="ringlet-run-") as name:
        folder = Path(name)
        (folder / "function.json").write_text(json.dumps({**where, "path": sys.path}), encoding="utf-8")
        encoding.save(list(arguments), folder / "arguments", "argument ")
        encoding.save(keywords, folder / "keywords", "argument ")
        plan = LaunchPlan(num_workers, launcher=launcher)
        outcome = execute(
            ["-m", "ringlet.launch.function", name], plan, _write, tell=lambda _text: None, seconds=timeout
        )
        if outcome.exit_code:
            if outcome.failure is None and outcome.exit_code == 130:
                raise KeyboardInterrupt
            raise RankFailedError(outcome.failure or f"the workers left with exit code {outcome.exit_code}")
        return [encoding.load(folder / f"result{rank}") for rank in range(num_workers)]


def describe(function: Callable[..., Any]) -> dict[str, Any]:
    """Where a rank finds the function. Raises :class:`UsageError` if it could not."""
    if not isinstance(function, FunctionType | BuiltinFunctionType):
        raise UsageError(f"{function!r} is no plain function: define one with def at the top of a module or script")
    module, name = function.__module__, function.__qualname__
    if "<" not in name and module not in (None, "__main__") and _lookup(module, name) is function:
        return {"kind": "module", "module": module, "name": name}
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if "<" not in name and module == "__main__" and file and Path(file).is_file():
        return {"kind": "file", "file": str(Path(file).resolve()), "name": name}
    return _describe_source(function)


def _lookup(module: str, name: str) -> Any:
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


def _describe_source(function: Callable[..., Any]) -> dict[str, Any]:
    """A function that is in no file that could be loaded: its text, which must need nothing around it but modules."""
    advice = "Import what it needs inside it and pass data as arguments, or put it into a module"
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise UsageError(f"{function!r} cannot be found by workers: define it with def")
    if function.__closure__:
        names = ", ".join(function.__code__.co_freevars)
        raise UsageError(f"function '{function.__name__}' uses {names} of the function around it. {advice}")
    imports, others = {}, []
    for name in sorted(set(_global_names(function.__code__))):
        value = function.__globals__.get(name, function)
        if isinstance(value, ModuleType):
            imports[name] = value.__name__
        elif value is not function and not hasattr(builtins, name):
            others.append(name)
    if others:
        raise UsageError(
            f"function '{function.__name__}' uses {', '.join(others)}, which workers do not have. {advice}"
        )
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise UsageError(f"the text of function '{function.__name__}' is not known. Put it into a module") from error
    return {"kind": "source", "source": source, "name": function.__name__, "imports": imports}


def _global_names(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _write(stream: int, data: bytes) -> None:
    """To the streams of Python, which a notebook shows; if no one takes it any more, the ranks continue."""
    target = sys.stdout if stream == STDOUT else sys.stderr
    with contextlib.suppress(OSError):  # the next print of the caller's program meets it too
        target.write(data.decode(errors="replace"))
        target.flush()


# -- in a rank -------------------------------------------------------------------------------------------------------
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
