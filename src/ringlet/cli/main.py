"""``ringlet``: finds the verb, runs it and turns errors into one clear message and an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ringlet import __version__, signals
from ringlet.cli.examples import with_examples
from ringlet.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, RingletError, UnknownNameError
from ringlet.output_streams import OutputLostError, end_with_output

VERBS = {
    "train": "Train a network and write its run directory.",
    "resume": "Go on with a run from its newest good checkpoint.",
    "checkpoints": "List and verify the checkpoints of a run.",
    "watch": "Show curves, times and events of runs on a live page.",
    "run": "Start a script on many workers.",
    "evaluate": "Evaluate a trained model on test data.",
    "export": "Export a trained model to OpenVINO, ONNX, PyTorch or Keras.",
    "predict": "Predict classes or masks of images.",
    "sql": "Keep models in a database and predict its rows.",
    "models": "List the networks of the zoo, or show the layers of one.",
    "datasets": "List the data sets, or fetch one into the data cache.",
    "tune": "Find a learning rate, or search for the options that learn best.",
    "study": "Run a grid of trainings and report whether another worker pays off.",
    "bench": "Measure how fast workers exchange data.",
    "plan": "Forecast memory, traffic and time of a run on 1 to 4,096 workers.",
    "init": "Write a commented configuration file of all options.",
    "config": "Show, check or describe the configuration of a run.",
    "doctor": "Say what works on this machine, what is missing and how to get it.",
    "completion": "Print the script that lets a shell complete commands, options and values.",
}
SIGNAL_BASE = 128
_ClickException: Any = typer.BadParameter.__mro__[2]
"""The base of the parser's own errors; Typer does not export it."""


class StoppedAtOnceError(Exception):
    """A verb was stopped by a signal; the parser would leave without a word on seeing KeyboardInterrupt."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = number


class LazyGroup(TyperGroup):
    """Loads the module of a verb only when that verb is called."""

    summaries = VERBS

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """All verbs, in the order in which a newcomer meets them."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a verb; an unknown one is an error with the nearest name."""
        if cmd_name in VERBS:
            module = import_module(f"ringlet.cli.{cmd_name}")
            return with_examples(module.command(), getattr(module, "EXAMPLES", ()))
        if ctx.resilient_parsing:
            return None
        raise UnknownNameError("command", cmd_name, VERBS)

    def invoke(self, ctx: Any) -> Any:
        """Load and run the verb."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise StoppedAtOnceError(getattr(error, "number", signal.SIGINT)) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """The list for ``--help``, from the table above: no verb is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


def underscores_are_dashes(token: str) -> str:
    """``--batch_size`` is ``--batch-size``."""
    return token.replace("_", "-")


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"token_normalize_func": underscores_are_dashes, "help_option_names": ["-h", "--help"]},
    epilog="Start with `ringlet train`: it trains a small network on built-in data within seconds.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"ringlet {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Ringlet: distributed deep learning from two cores to a cluster."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code; unexpected exceptions keep their traceback."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    verb = next((word for word in given if not word.startswith("-")), "")
    try:
        with end_with_output(), _stopping(verb):
            return _run(given)
    except OutputLostError as error:
        if not error.is_quiet:
            _complain(str(error))
        return SIGNAL_BASE + signal.SIGPIPE if error.loss.is_closed else EXIT_FAILED


def _run(given: Sequence[str]) -> int:
    """The same, without an eye to the output."""
    try:
        command = typer.main.get_command(app)
        if given[:2] == ["completion", "answer"]:
            return _complete(command, given[2:])
        outcome = command.main(args=list(given), prog_name="ringlet", standalone_mode=False, obj=given)
    except RingletError as error:
        return _failed(error)
    except _ClickException as error:
        return _usage(error)
    except MemoryError as error:
        from ringlet.training.memory import memory_error

        return _failed(memory_error(error))
    except (KeyboardInterrupt, StoppedAtOnceError, typer.Abort) as error:
        _say_stopped()
        return SIGNAL_BASE + int(getattr(error, "number", signal.SIGINT))
    return outcome if isinstance(outcome, int) else 0


def _say_stopped() -> None:
    """Once for all ranks."""
    from ringlet.comm.environments import detect

    world = detect()
    if world is None or world.rank == 0:
        _complain("stopped at once; unfinished files were removed", "interrupted")


@contextmanager
def _stopping(verb: str) -> Iterator[None]:
    """Within: SIGTERM and SIGHUP stop a verb as Ctrl-C does, but a script that runs as it would run under Python."""

    def stop(number: signal.Signals, _insists: bool) -> None:
        raise signals.Stopped(number)

    if verb == "run":
        yield
    else:
        with signals.handled(stop, (signal.SIGTERM, signal.SIGHUP)):
            yield


def _complete(command: Any, question: Sequence[str]) -> int:
    """Answer a shell's question; without parsing it, since a key was pressed and somebody waits."""
    from ringlet.cli.completion import answer

    shell, *words = question or ("bash",)
    answer(command, shell, words)
    return 0


def _failed(error: RingletError) -> int:
    """Say what went wrong; as one of several ranks, end the others as well."""
    from ringlet.comm.environments import detect
    from ringlet.launch import is_rank

    if is_rank():
        raise error  # the launcher tells it once, for all ranks, and ends them
    world = detect()
    interrupted = error.exit_code == EXIT_INTERRUPTED
    if world is None or world.size == 1:
        _complain(str(error), "interrupted" if interrupted else "error")
    elif not interrupted:
        _complain(f"rank {world.rank} of {world.size}: {error}")
        _end_other_ranks(error.exit_code)
    elif world.rank == 0:
        _complain(str(error), "interrupted")
    return error.exit_code


def _end_other_ranks(exit_code: int) -> None:
    from ringlet.comm import world

    if world.is_initialized():
        world.communicator().abort(exit_code)


def _usage(error: Any) -> int:
    """A parser error in our words; no arguments at all is a request for help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.ctx.get_help() if error.ctx else error.format_message())
        return EXIT_USAGE
    from ringlet.cli.parser_errors import in_our_words

    path = error.ctx.command_path if getattr(error, "ctx", None) else "ringlet"
    _complain(f"{in_our_words(error)}\nSee `{path} --help`.")
    return EXIT_USAGE


def _complain(message: str, heading: str = "error") -> None:
    from ringlet.cli.display import complain

    complain(message, heading)


if __name__ == "__main__":
    sys.exit(main())
