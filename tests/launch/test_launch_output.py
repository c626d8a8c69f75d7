"""Where output goes, without processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlet.errors import UsageError
from ringlet.launch.messages import STDERR, STDOUT
from ringlet.launch.output import create_output


class Written:
    def __init__(self) -> None:
        self.streams = {STDOUT: b"", STDERR: b""}

    def __call__(self, stream: int, data: bytes) -> None:
        self.streams[stream] += data


def merged(kind: str, *writes: tuple[int, int, bytes], size: int = 4, terminal: bool = False) -> dict[int, bytes]:
    written = Written()
    output = create_output(kind, size, written, terminal=terminal)
    for rank, stream, data in writes:
        output.write(rank, stream, data)
    output.close()
    return written.streams


@given(pieces=st.lists(st.binary(max_size=20), max_size=10))
def test_rank_0_passes_byte_by_byte(pieces):
    assert merged("plain", *((0, STDERR, piece) for piece in pieces))[STDERR] == b"".join(pieces)


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x1b")), cuts=st.lists(st.integers(0, 50)))
def test_lines_of_others_are_whole_however_they_arrive(text, cuts):
    data, pieces = f"{text}\nsecond\n".encode(), []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    streams = merged("plain", *((2, STDOUT, piece) for piece in [*pieces, data]))
    assert streams[STDOUT] == f"[rank 2] {text}\n[rank 2] second\n".encode()


def test_every_line_has_its_rank_with_prefix():
    streams = merged("prefix", (0, STDOUT, b"a\nb"), (11, STDOUT, b"c\n"), (0, STDOUT, b"b\n"), size=12)
    assert streams[STDOUT] == b"[rank  0] a\n[rank 11] c\n[rank  0] bb\n"


def test_of_a_redrawn_bar_the_last_state_is_kept():
    bar = b"\x1b[2K 10 %\r\x1b[2K 50 %\r\x1b[32m100 %\x1b[0m\r\n"
    assert merged("plain", (1, STDERR, bar))[STDERR] == b"[rank 1] \x1b[32m100 %\x1b[0m\n"


def test_empty_lines_stay():
    assert merged("plain", (1, STDOUT, b"a\n\nb\n"))[STDOUT] == b"[rank 1] a\n[rank 1] \n[rank 1] b\n"


def test_a_line_that_never_ends_is_written_at_the_end():
    assert merged("plain", (1, STDOUT, b"no newline"))[STDOUT] == b"[rank 1] no newline\n"


def test_lines_of_others_do_not_cut_a_line_of_rank_0():
    streams = merged("plain", (0, STDOUT, b"one "), (1, STDOUT, b"other\n"), (0, STDOUT, b"line\n"))
    assert streams[STDOUT] == b"one line\n[rank 1] other\n"


@pytest.mark.parametrize(("terminal", "between"), [(False, b"\n"), (True, b"\r\x1b[2K")])
def test_an_open_bar_of_rank_0_is_wiped_on_a_terminal_and_ended_elsewhere(terminal, between):
    streams = merged("plain", (0, STDERR, b"bar 10 %"), (1, STDERR, b"warning\n"), terminal=terminal)
    assert streams[STDERR] == b"bar 10 %" + between + b"[rank 1] warning\n"


def test_words_of_the_launcher_begin_a_line():
    written = Written()
    output = create_output("plain", 2, written)
    output.write(0, STDERR, b"bar")
    output.say("rank 1 failed")
    assert written.streams[STDERR] == b"bar\nrank 1 failed\n"


def test_a_folder_gets_one_file_per_rank_and_stream(tmp_path):
    written = Written()
    output = create_output(str(tmp_path / "logs"), 11, written)
    output.write(3, STDOUT, b"bytes\r\x1b[2K")
    output.write(10, STDERR, b"oh\n")
    output.say("told")
    output.close()
    assert (tmp_path / "logs/rank-03.out").read_bytes() == b"bytes\r\x1b[2K"
    assert (tmp_path / "logs/rank-10.err").read_bytes() == b"oh\n"
    assert len(list((tmp_path / "logs").iterdir())) == 22
    assert written.streams == {STDOUT: b"", STDERR: b"told\n"}


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="output folder"):
        create_output(str(tmp_path / "file"), 2, Written())


def test_a_job_can_write_to_a_folder(launch, script, launcher, tmp_path):
    folder = tmp_path / "logs"
    text = "import sys\nprint('x' * 2000, flush=True)\nprint('bad', file=sys.stderr)\n1 / 0\n"
    done = launch("-n", 2, "--launcher", launcher, "--output", folder, script(text))
    assert (done.returncode, done.stdout) == (1, "")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        f"rank-{rank}.{kind}": text for rank in (0, 1) for kind, text in (("out", "x" * 2000 + "\n"), ("err", "bad\n"))
    }


def test_much_output_arrives_complete_and_in_order(launch, script, launcher):
    text = "for i in range(20000):\n    print(i, 'x' * (i % 97))\n"
    done = launch("-n", 2, "--launcher", launcher, "--output", "prefix", script(text))
    expected = [f"{i} {'x' * (i % 97)}" for i in range(20000)]
    for rank in (0, 1):
        prefix = f"[rank {rank}] "
        lines = [line.removeprefix(prefix) for line in done.stdout.split("\n") if line.startswith(prefix)]
        assert lines == expected
