"""Hosts, plans, cores, environments and frames, without processes."""

from __future__ import annotations

import re
import struct

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ringlet.comm.environments import World, detect
from ringlet.errors import CommunicationError, UsageError
from ringlet.launch import Host, LaunchPlan, parse_hosts, read_hostfile
from ringlet.launch.messages import FRAME_BYTES, MAX_TEXT, MessageReader, Unpacker, failed, pack
from ringlet.launch.processes import JobFolder
from ringlet.launch.resources import control_group_quota, thread_environment, usable_cores
from ringlet.launch.worker import failure_text
from ringlet.libraries import remedy

HOSTILE = ["-oProxyCommand=id", "h;id", "$(id)", "a\nb", "`id`", "a b", "", "é", ".a", "a/b", "a@b", "a\0b", "x" * 254]


def test_hosts_are_names_with_numbers():
    assert parse_hosts("a:4, b-1.example.org:2,c_3") == (Host("a", 4), Host("b-1.example.org", 2), Host("c_3", 1))


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_host_name_is_refused(name):
    with pytest.raises(UsageError, match=r"is no host name|not understood"):
        Host(name)


@given(st.text(max_size=60))
@example("a:4,a:4")
@example("a:0")
@example("a:²")
@example("a:99999999999999999999")
def test_any_text_gives_harmless_names_or_a_clear_refusal(text):
    try:
        hosts = parse_hosts(text)
    except UsageError:
        return
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", host.name) for host in hosts)
    assert len({host.name for host in hosts}) == len(hosts)


@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_any_host_file_gives_harmless_names_or_a_clear_refusal(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("hosts") / "hosts"
    path.write_text(text, encoding="utf-8")
    try:
        hosts = read_hostfile(path)
    except UsageError:
        return
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", host.name) for host in hosts)


def test_host_files_have_slots_colons_and_comments(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# machines\na slots=4  # big\nb:2\n\nc\nd slots=3 max_slots=9\n")
    assert read_hostfile(path) == (Host("a", 4), Host("b", 2), Host("c", 1), Host("d", 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb colour=3\n", "line 2: 'b colour=3' is not understood"),
        ("a slots=many\n", "line 1: the number of ranks for host 'a' is 'many'"),
        ("# nothing\n", "names no host"),
        ("a:1\na:2\n", "named twice"),
        ("\n$(id) slots=1\n", r"line 2: '\$\(id\)' is no host name"),
    ],
)
def test_mistakes_in_host_files_are_located(tmp_path, text, message):
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_hostfile(tmp_path / "hosts")


def test_host_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("missing", "binary", "."):
        with pytest.raises(UsageError, match="host file"):
            read_hostfile(tmp_path / name)


def test_plans_are_checked():
    assert LaunchPlan(hosts=(Host("a", 4), Host("b", 2))).size == 6
    assert LaunchPlan().size == 1
    for wrong in ({"num_workers": 0}, {"num_workers": 10**6}, {"threads": 0}, {"output": ""}, {"launcher": "ssh"}):
        with pytest.raises(UsageError):
            LaunchPlan(**wrong)


@pytest.mark.parametrize(
    ("environ", "world"),
    [
        ({}, None),
        ({"RINGLET_JOB": "/x", "RINGLET_RANK": "1", "RINGLET_SIZE": "3"}, World("local", 1, 3, 1, 3)),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, World("mpich", 3, 4)),
        (
            {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
            World("mpich", 3, 4, 1, 2),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "5",
                "OMPI_COMM_WORLD_SIZE": "7",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            World("openmpi", 5, 7, 1, 2),
        ),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}, World("slurm", 1, 2, 0)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, World("torchrun", 1, 2)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, None),
        (
            {
                "TORCHELASTIC_RUN_ID": "x",
                "RANK": "1",
                "WORLD_SIZE": "2",
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2",
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "9",
            },
            World("torchrun", 1, 2, 1, 2),
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "4", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, World("mpich", 0, 4)),
    ],
)
def test_launchers_are_detected_innermost_first(environ, world):
    assert detect(environ) == world


@pytest.mark.parametrize("rank", ["", "x", "-1", "4", "1e3", "²", "99999999999999"])
def test_variables_that_make_no_sense_are_refused(rank):
    with pytest.raises(CommunicationError, match="RINGLET_RANK"):
        detect({"RINGLET_JOB": "/x", "RINGLET_RANK": rank, "RINGLET_SIZE": "4"})


def test_cores_respect_the_quota_of_control_groups(tmp_path):
    groups = tmp_path / "cgroup"
    groups.write_text("0::/pod/box\n")
    (tmp_path / "pod/box").mkdir(parents=True)
    assert control_group_quota(tmp_path, groups) is None
    (tmp_path / "pod/box/cpu.max").write_text("max 100000\n")
    (tmp_path / "pod/cpu.max").write_text("150000 100000\n")
    assert control_group_quota(tmp_path, groups) == 1.5
    groups.write_text("4:cpu,cpuacct:/old\n")
    (tmp_path / "cpu/old").mkdir(parents=True)
    (tmp_path / "cpu/old/cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert control_group_quota(tmp_path, groups) == 0.5


def test_threads_are_a_share_of_the_cores_unless_the_user_set_them():
    share = str(max(1, usable_cores() // 2))
    assert set(thread_environment(None, 2, {}).values()) == {share}
    assert thread_environment(None, 10**6, {})["OMP_NUM_THREADS"] == "1"
    own = thread_environment(None, 2, {"OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": "3"})
    assert (own["OPENBLAS_NUM_THREADS"], own["MKL_NUM_THREADS"]) == ("7", "3")
    assert set(thread_environment(5, 2, {"OMP_NUM_THREADS": "7"}).values()) == {"5"}


def test_folders_of_killed_launchers_are_removed_and_living_ones_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("ringlet-job-dead", "ringlet-job-starting", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "ringlet-job-dead/lock").touch()
    (tmp_path / "ringlet-job-link").symlink_to(tmp_path / "other")
    first = JobFolder()
    second = JobFolder()
    names = {"ringlet-job-starting", "ringlet-job-link", "other"}
    assert {path.name for path in tmp_path.iterdir()} == names | {first.path.name, second.path.name}
    assert first.path.stat().st_mode & 0o777 == 0o700
    first.close()
    second.close()
    first.close()
    assert {path.name for path in tmp_path.iterdir()} == names


TOKEN = b"0123456789abcdef"


@given(
    sent=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 3), st.binary(min_size=1, max_size=1500)), max_size=8),
    noise=st.lists(st.binary(max_size=30), min_size=1, max_size=8),
    cut=st.integers(1, 700),
)
def test_frames_survive_being_cut_mixed_and_surrounded(sent, noise, cut):
    assume(not any(b"\x1e" in piece for piece in noise))
    stream, expected = b"", {}
    for number, (rank, kind, data) in enumerate(sent):
        frames = list(pack(TOKEN, rank, kind, data))
        assert all(len(frame) == FRAME_BYTES for frame in frames)
        stream += noise[number % len(noise)] + b"".join(frames)
        expected[rank, kind] = expected.get((rank, kind), b"") + data
    unpacker, found = Unpacker(TOKEN), {}
    for start in range(0, len(stream), cut):
        for rank, kind, data in unpacker.feed(stream[start : start + cut]):
            found[rank, kind] = found.get((rank, kind), b"") + data
    unpacker.close()
    assert found == expected
    assert bytes(unpacker.noise) == b"".join(noise[number % len(noise)] for number in range(len(sent)))


@given(st.binary(max_size=2000))
def test_bytes_that_pretend_to_be_frames_do_no_harm(data):
    unpacker = Unpacker(TOKEN)
    for _rank, _stream, payload in unpacker.feed(b"\x1e" + TOKEN + struct.pack(">IBH", 7, 9, 65535) + data):
        assert len(payload) <= FRAME_BYTES


@given(st.binary(max_size=300))
@example(b"[" * 100_000 + b"\n")
@example(b"null\n1e999\n")
def test_any_bytes_are_messages_or_nothing(data):
    messages = list(MessageReader().feed(data + b"\n" + failed("end", 1)))
    assert messages[-1] == {"event": "failed", "text": "end", "exit_code": 1, "secondary": False}


def test_a_very_long_traceback_is_cut():
    [message] = MessageReader().feed(failed("x" * 10**6, 1))
    assert len(message["text"]) == MAX_TEXT


@pytest.mark.parametrize(("library", "extra"), [("torch", "torch"), ("tensorflow", "keras"), ("unheard_of", None)])
def test_a_failure_says_how_to_get_the_library_that_an_import_did_not_find(library: str, extra: str | None):
    text = failure_text(ModuleNotFoundError(f"No module named '{library}'", name=library))
    assert text.splitlines()[0] == f"ModuleNotFoundError: No module named '{library}'"
    assert text.splitlines()[1:] == ([] if extra is None else [remedy(ModuleNotFoundError(name=library))])
    assert extra is None or text.endswith(f'Install it with: pip install "ringlet[{extra}]"')
