"""The compose file's own command on its own services: ssh servers and entry point of deploy/, mpiexec over ssh."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import containers
import pytest

pytestmark = pytest.mark.xdist_group("deploy")
ADDRESSES = {"worker1": "10.77.32.1", "worker2": "10.77.32.2", "master": "10.77.32.9"}
SHORT = ["--num-epochs", "1", "--steps-per-epoch", "3"]
WHERE = """
import json, os
from ringlet.comm.world import connect
comm = connect()
total = float(comm.allreduce(__import__("numpy").ones(3))[0])
record = {"rank": comm.rank, "host": os.uname().nodename, "uid": os.getuid(), "sum": total}
print(json.dumps(record), flush=True)
comm.barrier()
"""
# Each line is a question to worker1 and its answer by exit code: 255 is ssh's refusal.
QUESTIONS = """
ask() { local name=$1; shift; local said; said=$("$@" 2>&1 < /dev/null); echo "answer $name $? $said"; }
ask account ssh worker1 'id -un; grep -l "^Name:.sshd" /proc/[0-9]*/status | xargs grep -h "^Uid:" | cut -f 2 | sort -u'
ask stranger ssh -o IdentityFile=/dev/null -o IdentityAgent=none -F "$PWD/strange" worker1 true
ask root ssh -l root worker1 true
ask terminal ssh -tt worker1 tty
ask settings /usr/sbin/sshd -T -f "$DEPLOY/sshd_config" -h .ssh/identity -p 2222
ask keys ssh worker1 'ls .ssh /run/secrets'
ask hosts ssh-keygen -l -f .ssh/known_hosts
"""


@dataclass
class Session:
    code: int
    output: str
    work: Path

    def answer(self, name: str) -> tuple[int, str]:
        start = self.output.index(f"answer {name} ") + len(f"answer {name} ")
        text = self.output[start:].split("\nanswer ")[0]
        code, _, said = text.partition(" ")
        return int(code), said.strip()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Workers are started as the compose file says, then the master: training first, questions afterwards."""
    pytest.importorskip("mpi4py")
    containers.skip_without_namespaces()
    links = containers.check("ip", "-brief", "link")
    folder = tmp_path_factory.mktemp("cluster")
    services = containers.compose_services()
    with containers.cluster(folder, ADDRESSES) as cluster:
        (cluster.work / "where.py").write_text(WHERE)
        role, *command = services["master"]["command"]
        training = shlex.join([*command, *SHORT])
        places = "ringlet run --hostfile /run/ringlet/hostfile --output prefix where.py"
        settings = f"DEPLOY={shlex.quote(str(containers.DEPLOY))}; grep -v IdentityFile .ssh/config > strange"
        script = f"{training} && {places} || exit; cd; {settings}; {QUESTIONS}"
        workers = [name for name in services if name != "master"]
        started = [cluster.start(name, services[name]["command"], ADDRESSES[name]) for name in workers]
        master = cluster.start("master", [role, "bash", "-c", script], ADDRESSES["master"])
        for worker in started:
            worker.go()
            worker.wait_for("Server listening")
        output, _ = master.process.communicate("go\n", timeout=containers.SECONDS)
    assert containers.check("ip", "-brief", "link") == links, "a network interface was left behind"
    return Session(master.process.returncode, output, cluster.work)


def test_the_command_of_the_compose_file_trains_on_both_workers(session: Session) -> None:
    assert session.code == 0, session.output
    events = [json.loads(line) for line in (session.work / "runs/digits/events.ndjson").read_text().splitlines()]
    assert [event["num_workers"] for event in events if "num_workers" in event] == [2]
    assert [event["step"] for event in events if event["event"] == "step_finished"] == [1, 2, 3]
    assert (session.work / "runs/digits").stat().st_uid == containers.ACCOUNT


def test_ranks_are_on_both_workers_and_none_is_root(session: Session) -> None:
    records = [json.loads(line.partition("] ")[2]) for line in session.output.splitlines() if line.startswith("[rank ")]
    expected = [{"rank": rank, "host": f"worker{rank + 1}", "uid": containers.ACCOUNT, "sum": 2.0} for rank in (0, 1)]
    assert sorted(records, key=lambda record: record["rank"]) == expected


def test_the_ssh_server_runs_as_the_account_and_wants_its_key(session: Session) -> None:
    assert session.answer("account") == (0, f"ringlet\n{containers.ACCOUNT}")
    code, said = session.answer("stranger")
    assert (code, "Permission denied (publickey)" in said) == (255, True)
    code, said = session.answer("root")
    assert (code, "Permission denied (publickey)" in said) == (255, True)


def test_the_ssh_server_reads_all_of_its_settings(session: Session) -> None:
    code, said = session.answer("settings")
    assert code == 0, said
    closed = ("passwordauthentication", "permitrootlogin", "allowtcpforwarding", "permittunnel", "x11forwarding")
    assert {"port 2222", *(f"{name} no" for name in closed)} <= set(said.splitlines())


def test_the_ssh_server_gives_no_terminal(session: Session) -> None:
    code, said = session.answer("terminal")
    assert code != 0
    assert "PTY allocation request failed" in said


def test_workers_hold_no_private_key_and_made_host_keys_of_their_own(session: Session) -> None:
    code, said = session.answer("keys")
    assert code == 0
    assert set(said.split()) == {
        ".ssh:",
        "authorized_keys",
        "host_key",
        "host_key.pub",
        "/run/secrets:",
        "id_ed25519.pub",
    }
    code, said = session.answer("hosts")
    fingerprints = {line.split()[2]: line.split()[1] for line in said.splitlines()}
    assert code == 0
    assert len(set(fingerprints.values())) == 2, said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["worker"], "no public key in"),
        (["master", "true"], "no private key in"),
        (["master"], "master needs a command"),
        ([], "nothing to do"),
    ],
)
def test_the_entry_point_says_what_is_missing(tmp_path: Path, words: list[str], message: str) -> None:
    environment = {"HOME": str(tmp_path), "RINGLET_KEYS": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [str(containers.DEPLOY / "entrypoint.sh"), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert message in done.stderr
