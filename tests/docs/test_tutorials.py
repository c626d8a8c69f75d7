"""Every tutorial and the quick start, carried out as a reader would: in an empty folder, command by command."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tutorial import Check, Command, File, TutorialError, matches, parse, run

DOCS = Path(__file__).parents[2] / "docs"
NEEDS = {
    "pytorch-script": ("torch",),
    "from-horovod": ("torch",),
    "from-ddp": ("torch",),
    "keras-script": ("keras", "tensorflow"),
    "own-modules": ("torch", "keras", "tensorflow", "openvino"),
    "segment-and-score": ("duckdb", "openvino"),
    "tasks-and-losses": ("torch",),
}
RUN = (
    "quick-start.md",
    "own-data.md",
    "own-modules.md",
    "tasks-and-losses.md",
    "transfer-learning.md",
    "evaluation.md",
    "augmentation.md",
)
PAGES = sorted(page for page in (DOCS / "tutorials").glob("*.md") if page.stem != "index")


@pytest.mark.parametrize("page", [*(DOCS / name for name in RUN), *PAGES], ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_says(page: Path, tmp_path: Path) -> None:
    for library in NEEDS.get(page.stem, ()):
        pytest.importorskip(library)
    if page.stem == "from-ddp" and not entry_points(group="torch.backends", name="ringlet"):
        pytest.skip("PyTorch learns the backend's name from an installed Ringlet")
    tutorial = parse(page.read_text(encoding="utf-8"))
    assert any(isinstance(step, Command) for step in tutorial.steps)
    run(tutorial, tmp_path)


def test_blocks_become_steps() -> None:
    page = (
        'A file:\n\n```python title="a.py"\nprint(1)\n```\n\n'
        "```console\n$ python \\\n    a.py\n1\n$ false\n$ echo $?\n1\n```\n"
        "<!-- check: loss <= 0.5 -->\n<!-- timeout: 7 -->\n"
    )
    tutorial = parse(page)
    assert tutorial.steps == [
        File("a.py", "print(1)\n"),
        Command("python \\\n    a.py", ("1",)),
        Command("false", ()),
        Command("echo $?", ("1",)),
        Check("loss", "<=", 0.5),
    ]
    assert tutorial.seconds == 7


@pytest.mark.parametrize("block", ["```python\nx = 1\n```\n", "```\n$ ls\n```\n", "```console\nno command\n```\n"])
def test_a_block_that_nobody_runs_is_an_error(block: str) -> None:
    with pytest.raises(TutorialError):
        parse(block)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (("loss 0.5, 3 epochs",), "loss 1.25e-3, 3 epochs\n", True),
        (("loss 0.5, 3 epochs",), "loss 0.5, 4 epochs\n", False),
        (("time … s",), "time 3 s\n", True),
        (("a", "…", "z"), "a\nb\nc\nz\n", True),
        (("a", "…", "z"), "a\nz\n", True),
        (("a", "z"), "a\nb\nz\n", False),
        (("a",), "a", True),
    ],
)
def test_what_is_shown_is_compared(shown: tuple[str, ...], printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("```console\n$ echo one\ntwo\n```\n", "is shown with"),
        ("```console\n$ exit 3\n```\n", "exit code 3"),
        ("```console\n$ echo accuracy 0.4\n```\n<!-- check: accuracy >= 0.5 -->\n", "accuracy is 0.4"),
        ("```console\n$ echo nothing\n```\n<!-- check: accuracy >= 0.5 -->\n", "no number"),
        ("```console\n$ read < <(tail -f /dev/null)\n```\n<!-- timeout: 1 -->\n", "was not done"),
    ],
)
def test_a_page_that_does_not_tell_the_truth_fails(page: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(TutorialError, match=problem):
        run(parse(page), tmp_path)


def test_a_failing_command_may_show_its_exit_code(tmp_path: Path) -> None:
    run(parse("```console\n$ exit 3\n$ echo $?\n3\n$ echo $?\n0\n```\n"), tmp_path)
