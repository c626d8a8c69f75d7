"""When a job is started again, and what its ranks see of it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from launched import processes_with

from ringlet.errors import UsageError
from ringlet.launch import Host, LaunchPlan, parse_hosts
from ringlet.launch.job import Job, Outcome
from ringlet.launch.mpiexec import MpiLauncher, answering_hosts, without_absent
from ringlet.launch.output import create_output
from ringlet.launch.resources import MemoryWatch, count_kills
from ringlet.launch.restarts import CheckpointWatch, Supervisor, attempt_environment, may_help, restart_delay

KILLED = Outcome(3, "long text", "rank 1 was killed by signal 9 (SIGKILL)")


class Story:
    """Attempts that end as told; each number is how many checkpoints there are after it."""

    def __init__(self, outcomes, reached=None, limit=3):
        self.outcomes, self.reached, self.attempts, self.said = list(outcomes), reached, [], []
        token = (lambda: None) if reached is None else self.token
        self.supervisor = Supervisor(limit, self.attempt, self.said.append, "2 workers", token)

    def attempt(self, number, has_progressed):
        self.attempts.append((number, has_progressed))
        return self.outcomes[number]

    def token(self):
        number = self.reached[len(self.attempts) - 1] if self.attempts else 0
        return frozenset((f"step-{step}", step, 0) for step in range(number))

    def end(self):
        return self.supervisor.run()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setenv("RINGLET_RESTART_DELAY", "0")


def test_success_and_what_cannot_be_mended_end_at_once():
    for outcome in (Outcome(0), Outcome(2), Outcome(4), Outcome(5), Outcome(7), Outcome(3, asked=signal.SIGTERM)):
        story = Story([outcome])
        assert (story.end(), story.said) == (outcome, [])


def test_ranks_are_told_of_earlier_attempts_in_one_line():
    assert attempt_environment(0, None) == {"RINGLET_ATTEMPT": "0", "RINGLET_RESTART_CAUSE": ""}
    assert attempt_environment(2, "a\0b\nc\x1b")["RINGLET_RESTART_CAUSE"] == "a b c "
    assert attempt_environment(1, None)["RINGLET_RESTART_CAUSE"] == "the job failed"


@pytest.mark.parametrize("code", [1, 3])
def test_failures_and_deaths_are_tried_again(code):
    story = Story([Outcome(code, "text", "rank 2 failed (because)"), Outcome(0)])
    assert story.end() == Outcome(0)
    assert story.said == ["restart 1 of 3: rank 2 failed (because) after 0.0 s; starting 2 workers again"]


def test_lost_ranks_are_tried_again_whatever_code_mpiexec_has():
    assert may_help(Outcome(15, is_loss=True))
    assert not may_help(Outcome(2, is_loss=True))
    assert not may_help(Outcome(15))


def test_the_limit_counts_restarts():
    story = Story([KILLED] * 4, reached=[1, 2, 3, 4])
    assert story.end() == KILLED
    assert [line.split(":")[0] for line in story.said] == [
        "restart 1 of 3",
        "restart 2 of 3",
        "restart 3 of 3",
        "no more restarts",
    ]


def test_without_a_rule_for_progress_only_the_limit_counts():
    story = Story([KILLED] * 6, limit=5)
    assert (story.end(), len(story.attempts)) == (KILLED, 6)


def test_two_attempts_in_a_row_without_progress_are_enough():
    story = Story([KILLED] * 5, reached=[1, 1, 2, 2, 2], limit=9)
    assert (story.end(), len(story.attempts)) == (KILLED, 5)
    assert "2 attempts in a row made no new checkpoint (4 of 9 restarts were used)" in story.said[-1]


def test_hosts_that_do_not_answer_are_no_lack_of_progress():
    story = Story([Outcome(3, "x", "no answer from b", is_absence=True)] * 4, reached=[0, 0, 0, 0])
    assert story.end().is_absence
    assert len(story.attempts) == 4


def test_attempts_know_their_number_and_whether_anything_was_reached():
    story = Story([KILLED, KILLED, KILLED, Outcome(0)], reached=[0, 1, 1, 1])
    assert story.end() == Outcome(0)
    assert story.attempts == [(0, False), (1, False), (2, True), (3, True)]


def test_a_signal_in_between_ends_it():
    story = Story([KILLED])
    story.supervisor.caught = [signal.SIGTERM]
    assert story.end() == Outcome(143, asked=signal.SIGTERM)


def test_delays_double_up_to_a_minute():
    assert [restart_delay(number, {}) for number in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert restart_delay(10_000, {}) == 60
    assert restart_delay(3, {"RINGLET_RESTART_DELAY": "0.5"}) == 0.5


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_delay_that_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="is no time"):
        restart_delay(1, {"RINGLET_RESTART_DELAY": text})


def test_a_checkpoint_written_anew_is_progress_and_a_removed_one_is_not(tmp_path):
    watch = CheckpointWatch(tmp_path)
    (tmp_path / "step-00000002").mkdir()
    (tmp_path / ".step-00000004.partial-x").mkdir()
    before = watch.token()
    assert len(before) == 1
    (tmp_path / "step-00000002").rename(tmp_path / "aside")
    assert watch.token() - before == frozenset()
    (tmp_path / "step-00000002").mkdir()
    assert len(watch.token() - before) == 1


def test_checkpoints_that_cannot_be_seen_are_unknown_or_none(tmp_path):
    assert CheckpointWatch(tmp_path / "nowhere").token() == frozenset()
    assert CheckpointWatch(tmp_path / "nowhere", is_elsewhere=True).token() is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"restarts": -1}, "number of restarts is -1"),
        ({"num_workers": 2, "min_workers": 3}, "expected 1 to 2"),
        ({"min_workers": 0}, "smallest number of workers is 0"),
    ],
)
def test_plans_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(UsageError, match=message):
        LaunchPlan(**fields)


# -- out of memory ----------------------------------------------------------------------------------------------------
def kernel_files(folder: Path, groups: str, **counters: str) -> tuple[Path, Path, Path]:
    (folder / "groups").write_text(groups)
    (folder / "vmstat").write_text("nr_free_pages 5\noom_kill 7\n")
    for name, text in counters.items():
        path = folder / "root" / name.replace("__", ".").replace("_in_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "root", folder / "groups", folder / "vmstat"


def test_kills_for_want_of_memory_are_counted_by_control_group_or_machine(tmp_path):
    second = kernel_files(tmp_path, "0::/a\n", a_in_memory__events="oom 4\noom_kill 3\noom_group_kill 9\n")
    assert count_kills(*second) == 3
    (tmp_path / "groups").write_text("0::/missing\n")
    assert count_kills(*second) == 7
    first = kernel_files(tmp_path, "4:memory:/b\n0::/\n")
    control = tmp_path / "root/memory/b/memory.oom_control"
    control.parent.mkdir(parents=True)
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert count_kills(*first) == 2
    assert count_kills(tmp_path / "no", tmp_path / "no", tmp_path / "no") == 0


def test_only_a_kill_after_which_the_count_rose_is_for_want_of_memory(tmp_path):
    places = kernel_files(tmp_path, "")
    watch = MemoryWatch(*places)
    assert not watch.explains(-signal.SIGKILL)
    (tmp_path / "vmstat").write_text("oom_kill 8\n")
    assert watch.explains(-signal.SIGKILL)
    assert not watch.explains(-signal.SIGSEGV)
    assert not watch.explains(1)


def test_a_lack_of_memory_is_named_as_the_cause():
    told: list[str] = []
    job = Job(2, create_output("plain", 2, lambda _stream, _data: None), told.append)
    job.ended(1, -signal.SIGKILL, out_of_memory=True)
    outcome = job.conclude()
    assert outcome.cause == "rank 1 was killed by signal 9 (SIGKILL): memory ran out"
    assert "memory ran out. Try a smaller batch or fewer workers." in told[0]


# -- hosts that stay away ---------------------------------------------------------------------------------------------
FAKE = """#!{python} -IS
import signal, sys
name = open(sys.argv[sys.argv.index("-f") + 1]).read().partition(":")[0]
if name == "mute":
    signal.pause()
sys.exit(name == "bad")
"""


@pytest.fixture
def fake(tmp_path):
    path = tmp_path / "mpiexec"
    path.write_text(FAKE.format(python=sys.executable))
    path.chmod(0o700)
    return MpiLauncher(str(path), "hydra")


def test_hosts_are_asked_all_at_once_and_the_silent_ones_are_given_up(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("RINGLET_TEST_MARK", tmp_path.name)
    hosts = parse_hosts("good:2,bad,mute:4,localhost,fine")
    present = answering_hosts(hosts, fake, os.environ, seconds=2)
    assert [host.name for host in present] == ["good", "localhost", "fine"]
    assert processes_with(tmp_path.name) == []


def test_a_signal_ends_the_asking(fake):
    assert answering_hosts((Host("mute"),), fake, os.environ, seconds=600, caught=[signal.SIGINT]) == ()


def test_a_plan_shrinks_to_the_hosts_that_are_there_but_not_below_its_minimum():
    plan = LaunchPlan(None, parse_hosts("a:2,b:2,c:2"), min_workers=3)
    reduced = without_absent(plan, plan.hosts[:2])
    assert reduced is not None
    assert (reduced.size, reduced.hosts) == (4, plan.hosts[:2])
    assert without_absent(plan, plan.hosts[:1]) is None
    few = LaunchPlan(3, parse_hosts("a:2,b:2,c:2"), min_workers=1)
    assert without_absent(few, few.hosts[:2]).size == 3
    assert without_absent(few, ()) is None
    assert without_absent(LaunchPlan(None, parse_hosts("a,b")), parse_hosts("a")) is None


# -- real jobs --------------------------------------------------------------------------------------------------------
COUNTING = """
    import os, sys
    from ringlet.comm.environments import detect
    attempt = int(os.environ["RINGLET_ATTEMPT"])
    print("attempt", attempt, flush=True)
    if detect().rank == 1 and attempt < 2:
        {end}
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit(1)", "1 / 0"])
def test_a_script_is_started_again_and_knows_how_often(launch, script, launcher, end):
    text = COUNTING.format(end=end)
    done = launch("-n", 2, "--launcher", launcher, "--restarts", 2, script(text), RINGLET_RESTART_DELAY="0")
    assert done.returncode == 0, done.stderr
    seen = done.stdout.replace("[rank 1] ", "").splitlines()
    assert {line for line in seen if line != "attempt 2"} == {"attempt 0", "attempt 1"}
    assert seen.count("attempt 2") == 2
    restarts = [line[:15] for line in done.stderr.splitlines() if line.startswith("restart")]
    assert restarts == ["restart 1 of 2:", "restart 2 of 2:"]


def test_a_delay_that_is_no_time_is_told_before_anything_starts(launch, script):
    done = launch("-n", 2, "--launcher", "local", "--restarts", 2, script("print()"), RINGLET_RESTART_DELAY="soon")
    assert (done.returncode, done.stdout) == (2, "")
    assert "RINGLET_RESTART_DELAY='soon' is no time" in done.stderr


def test_scripts_that_leave_with_another_code_are_not_started_again(launch, script):
    done = launch("-n", 2, "--launcher", "local", "--restarts", 2, script("import sys; print('once'); sys.exit(7)"))
    assert (done.returncode, done.stdout.count("once")) == (7, 2)
    assert "restart" not in done.stderr


def test_output_files_keep_what_earlier_attempts_wrote(launch, script, tmp_path):
    text = COUNTING.format(end="sys.exit(1)")
    words = ("-n", 2, "--launcher", "local", "--restarts", 2, "--output", tmp_path / "out", script(text))
    assert launch(*words, RINGLET_RESTART_DELAY="0").returncode == 0
    for rank in (0, 1):
        assert (tmp_path / "out" / f"rank-{rank}.out").read_text() == "attempt 0\nattempt 1\nattempt 2\n"


def test_a_loop_of_ones_own_survives_the_death_of_a_rank(launch, script, tmp_path):
    text = f"""
    import os
    import numpy as np
    import ringlet
    ringlet.init()
    state = ringlet.elastic.State({str(tmp_path / "progress")!r}, step=0, weights=np.zeros(10))
    state.restore()
    while state.step < 6:
        state.weights += ringlet.allreduce(np.ones(10) * (state.step + 1), op="sum")
        state.step += 1
        if os.environ["RINGLET_ATTEMPT"] == "0" and ringlet.rank() == 1 and state.step == 4:
            os.kill(os.getpid(), 9)
        state.commit()
    print(state.weights[0], state.step, flush=True)
    """
    done = launch(
        "-n", 2, "--launcher", "local", "--restarts", 1, script(text), RINGLET_RESTART_DELAY="0", TMPDIR=str(tmp_path)
    )
    assert sorted(done.stdout.splitlines()) == ["42.0 6", "[rank 1] 42.0 6"], done.stderr
    assert done.stderr.count("restart 1 of 1: rank 1 was killed by signal 9") == 1


def test_ranks_of_another_launcher_cannot_be_started_again(begin, script):
    pytest.importorskip("mpi4py")
    from ringlet.launch.mpiexec import find_mpi

    words = [sys.executable, "-m", "ringlet", "run", "--restarts", "2", str(script("print('ran')"))]
    job = begin([find_mpi().path, "-n", "2", *words])
    done = job.finish()
    assert (done.returncode, done.stdout) == (2, "")
    assert "--restarts cannot start again" in done.stderr
