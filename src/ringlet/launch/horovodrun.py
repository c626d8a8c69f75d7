"""horovodrun's options in terms of ``ringlet run``'s: what each becomes, or why it changes nothing or is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from ringlet.errors import UsageError

_TUNING = "there is no cycle and no buffer to tune: small tensors that are ready travel together"
_NETWORK = "workers of one machine share memory, and MPI chooses the network between machines"
_NO_GROWTH = "a job keeps its workers, or is started again with fewer of them (--restarts, --min-workers)"
_SSH = "put it into ~/.ssh/config, where ssh and MPI look for it"
_PROGRAM_FLAGS = frozenset({"-u", "-B", "-s", "-E", "-b", "-q"})
"""Of Python: they change nothing about a program that matters here."""


@final
@dataclass(frozen=True)
class Option:
    """One option: ``becomes`` another one, or sets a ``variable``, or has a ``reason`` for changing nothing."""

    names: tuple[str, ...]
    takes_value: bool = True
    becomes: str = ""
    variable: str = ""
    value: str = ""
    """What it means, if it takes none."""
    reason: str = ""
    is_refused: bool = False


OPTIONS = (
    Option(("--num-proc",), becomes="--num-workers"),
    Option(("-H",), becomes="--hosts"),
    Option(("-hostfile", "--host-file"), becomes="--hostfile"),
    Option(("--output-filename",), becomes="--output"),
    Option(("--min-np", "--min-num-proc"), becomes="--min-workers"),
    Option(("--reset-limit",), becomes="--restarts"),
    Option(("--mpi", "--use-mpi"), takes_value=False, becomes="--launcher", value="mpi"),
    Option(("--gloo", "--use-gloo"), takes_value=False, reason="workers find each other by themselves"),
    Option(("--timeline-filename",), variable="HOROVOD_TIMELINE"),
    Option(("--timeline-mark-cycles",), takes_value=False, variable="HOROVOD_TIMELINE_MARK_CYCLES", value="1"),
    Option(("--no-timeline-mark-cycles",), takes_value=False, variable="HOROVOD_TIMELINE_MARK_CYCLES", value="0"),
    Option(("--no-stall-check",), takes_value=False, variable="HOROVOD_STALL_CHECK_DISABLE", value="1"),
    Option(("--stall-check",), takes_value=False, variable="HOROVOD_STALL_CHECK_DISABLE", value="0"),
    Option(("--stall-check-warning-time-seconds",), variable="HOROVOD_STALL_CHECK_TIME_SECONDS"),
    Option(("--stall-check-shutdown-time-seconds",), variable="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"),
    Option(("--max-np", "--max-num-proc"), reason=_NO_GROWTH),
    Option(("--slots", "--slots-per-host", "--elastic-timeout"), reason=_NO_GROWTH),
    Option(("--start-timeout",), reason="a worker that cannot start ends the job at once"),
    Option(("--network-interfaces", "--network-interface", "--nics"), reason=_NETWORK),
    Option(("--gloo-timeout-seconds",), reason=_NETWORK),
    Option(("--disable-cache",), takes_value=False, reason="nothing about hosts is cached"),
    Option(("--verbose",), takes_value=False, reason="failures are reported with all that is known of them"),
    Option(("--log-level",), reason="warnings and errors are always shown, and there is nothing else"),
    Option(
        ("--log-with-timestamp", "--log-hide-timestamp", "--no-log-hide-timestamp", "--log-without-timestamp"),
        takes_value=False,
        reason="lines are passed on as workers print them",
    ),
    Option(("--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity"), reason=_TUNING),
    Option(
        ("--autotune-log-file", "--autotune-warmup-samples", "--autotune-steps-per-sample",
         "--autotune-bayes-opt-max-samples", "--autotune-gaussian-process-noise"),
        reason=_TUNING,
    ),
    Option(("--autotune", "--no-autotune"), takes_value=False, reason=_TUNING),
    Option(
        ("--hierarchical-allreduce", "--no-hierarchical-allreduce", "--hierarchical-allgather",
         "--no-hierarchical-allgather", "--torus-allreduce", "--no-torus-allreduce"),
        takes_value=False,
        reason="the exchange is hierarchical wherever there are several machines",
    ),
    Option(("--num-nccl-streams", "--thread-affinity"), reason="gradients are exchanged in the memory of the CPU"),
    Option(
        ("--mpi-threads-disable", "--no-mpi-threads-disable", "--tcp"),
        takes_value=False,
        reason="what the MPI can do is asked from it",
    ),
    Option(("--binding-args",), reason="workers are left to the system's scheduler"),
    Option(
        ("--host-discovery-script",),
        is_refused=True,
        reason=f"{_NO_GROWTH}. Name the hosts with -H or --hostfile, and the fewest workers with --min-np",
    ),
    Option(("--ssh-port", "-p", "--ssh-identity-file", "-i"), is_refused=True, reason=_SSH),
    Option(("--mpi-args",), is_refused=True, reason="set MPI's own variables, or start by mpirun … ringlet run …"),
    Option(("--jsrun", "--use-jsrun"), takes_value=False, is_refused=True, reason="start by jsrun … ringlet run …"),
    Option(
        ("--config-file",),
        is_refused=True,
        reason="give its settings as options: most of them have nothing to tune here",
    ),
    Option(("--blacklist-cooldown-range",), reason=_NO_GROWTH),
)  # fmt: skip
_BY_NAME = {name: option for option in OPTIONS for name in option.names}


@final
@dataclass
class Translation:
    """A command line of ``ringlet run``."""

    words: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    """What was given and changes nothing, with the reason."""


def takes_value(name: str) -> bool | None:
    """Whether an option of horovodrun takes a value; None if it is none."""
    found = _BY_NAME.get(name)
    return None if found is None else found.takes_value


def translated(words: Sequence[str]) -> Translation:
    """Options of ``ringlet run`` for those of horovodrun among them; all others stay as they are."""
    result, left = Translation(), list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        option = _BY_NAME.get(name)
        if option is None:
            result.words.append(word)
            continue
        if option.takes_value and not equals:
            if not left:
                raise UsageError(f"{name} needs a value: expected one after it")
            value = left.pop(0)
        _apply(option, name, value if option.takes_value else option.value, result)
    return result


def _apply(option: Option, name: str, value: str, result: Translation) -> None:
    if option.is_refused:
        raise UsageError(f"{name} cannot be used: {option.reason}")
    if option.becomes:
        result.words += [option.becomes, value]
    elif option.variable:
        result.variables[option.variable] = value
    else:
        result.remarks.append(f"{name} changes nothing: {option.reason}")


def without_interpreter(command: Sequence[str]) -> list[str]:
    """``python -u train.py`` without ``python -u``: workers run under this Python. Other commands stay."""
    words = list(command)
    if not words or not is_interpreter(words[0]):
        return words
    left = words[1:]
    while left and left[0] in _PROGRAM_FLAGS:
        left.pop(0)
    if not left or (left[0].startswith("-") and left[0] != "-m"):
        raise UsageError(
            f"`{' '.join(words[:2])}` cannot be started on workers: expected a script, or -m and a module, with no "
            f"options of Python but {', '.join(sorted(_PROGRAM_FLAGS))}"
        )
    return left


def is_interpreter(word: str) -> bool:
    """Whether it is the name of a Python."""
    name = Path(word).name
    return name.startswith("python") and not name.removeprefix("python").strip("0123456789.")
