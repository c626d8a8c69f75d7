"""Two machines for real: namespaces of their own, joined by a cable; a stand-in for ssh starts ranks on the other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("ringa", "ringb")
ADDRESSES = ("10.77.31.1", "10.77.31.2")
SCRIPT = """
    import json, os
    import numpy as np
    from ringlet.comm.world import connect
    comm = connect()
    total = comm.allreduce(np.full(500_000, comm.rank + 1.0))
    shared = comm.shared_array(4, np.float32)
    record = {"rank": comm.rank, "host": os.uname().nodename, "nodes": len(comm.local_sizes)}
    record |= {"sizes": comm.local_sizes, "sum": float(total[-1]), "equal": bool((total == total[0]).all())}
    print(json.dumps(record), flush=True)
    comm.barrier()
"""
SSH = """#!{python} -I
import json, os, sys
words = sys.argv[1:]
with open({record!r}, "a") as file:
    file.write(json.dumps(words) + "\\n")
while words and words[0].startswith("-"):
    del words[0]
holder = {{"ringa": {first}, "ringb": {second}}}[words[0]]
os.execvp("nsenter", ["nsenter", "-t", str(holder), "-n", "-u", "-m", "--", "sh", "-c", " ".join(words[1:])])
"""
CLOSED = """import json, os, sys
if os.path.exists({fault!r}):
    sys.exit("no route to host")"""


@dataclass
class Machines:
    holders: list[int]
    environment: dict[str, str]
    record: Path

    def inside(self, machine: int, command: list[str]) -> list[str]:
        return ["nsenter", "-t", str(self.holders[machine]), "-n", "-u", "-m", "--", *command]

    def is_connected(self, machine: int) -> bool:
        words = self.inside(machine, ["ip", "-json", "link", "show", "cable"])
        return bool(json.loads(command_output(words))[0]["operstate"] == "UP")

    def received(self, machine: int) -> int:
        """Bytes that have come through the cable."""
        words = self.inside(machine, ["ip", "-json", "-statistics", "link", "show", "cable"])
        return int(json.loads(command_output(words))[0]["stats64"]["rx"]["bytes"])


def command_output(words: list[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    pytest.importorskip("mpi4py")
    if any(shutil.which(tool) is None for tool in ("unshare", "nsenter", "ip", "mount")):
        pytest.skip("two hosts need the tools unshare, nsenter, ip and mount")
    spaces = ["unshare", "--net", "--uts", "--mount"]
    if os.geteuid() != 0 or subprocess.run([*spaces, "true"], capture_output=True, timeout=30).returncode != 0:
        pytest.skip("two hosts need network namespaces, which are not allowed here")
    table = tmp_path / "table"
    table.write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for a, n in zip(ADDRESSES, NAMES, strict=True)))
    setup = 'hostname "$1" && mount --bind "$2" /etc/hosts && mount -t sysfs sysfs /sys && ip link set lo up'
    setup += " && echo ready && exec cat"
    holders = []
    try:
        for name in NAMES:
            words = [*spaces, "sh", "-c", setup, "sh", name, str(table)]
            holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            holders.append(holder)
            assert holder.stdout is not None
            if holder.stdout.readline() != b"ready\n":
                pytest.skip("two hosts need namespaces with names and mounts of their own, which are not allowed here")
        yield _connect(tmp_path, [holder.pid for holder in holders])
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


def _connect(folder: Path, holders: list[int]) -> Machines:
    ssh, record = folder / "ssh", folder / "ssh.json"
    ssh.write_text(SSH.format(python=sys.executable, record=str(record), first=holders[0], second=holders[1]))
    ssh.chmod(0o700)
    environment = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(ssh), "UCX_TLS": "tcp,self"}
    machines = Machines(holders, environment, record)
    ends = [
        "name",
        "cable",
        "netns",
        str(holders[0]),
        "type",
        "veth",
        "peer",
        "name",
        "cable",
        "netns",
        str(holders[1]),
    ]
    command_output(["ip", "link", "add", *ends])
    for machine, address in enumerate(ADDRESSES):
        command_output(machines.inside(machine, ["ip", "address", "add", f"{address}/24", "dev", "cable"]))
        command_output(machines.inside(machine, ["ip", "link", "set", "cable", "up"]))
    while not all(machines.is_connected(machine) for machine in range(len(NAMES))):
        time.sleep(0.01)  # the kernel notices a moment later that both ends are plugged in
    return machines


def run_on_both(machines: Machines, begin, words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringlet", "run", "--launcher", "mpi", *words]
    return begin(machines.inside(0, command), machines.environment).finish()


@pytest.mark.parametrize("per_host", [1, 2])
def test_ranks_on_two_hosts_agree(machines, begin, script, per_host):
    before = machines.received(0)
    hosts = f"ringa:{per_host},ringb:{per_host}"
    done = run_on_both(machines, begin, ["--hosts", hosts, "--output", "prefix", str(script(SCRIPT))])
    assert done.returncode == 0, done.stderr
    records = sorted(
        (json.loads(line.partition("] ")[2]) for line in done.stdout.splitlines()), key=lambda r: r["rank"]
    )
    size = 2 * per_host
    assert [record["host"] for record in records] == ["ringa"] * per_host + ["ringb"] * per_host
    total = size * (size + 1) / 2
    expected = {"nodes": 2, "sizes": [per_host, per_host], "sum": total, "equal": True}
    assert all(record.items() >= expected.items() for record in records), records
    assert machines.received(0) - before > 500_000 * 8 / 2, "the exchange did not go through the cable"


def test_a_host_file_serves_as_well(machines, begin, script, tmp_path):
    (tmp_path / "hosts").write_text("ringb slots=1\nringa slots=1\n")
    text = "import os\nfrom ringlet.comm.environments import detect\nprint(detect().rank, os.uname().nodename)\n"
    done = run_on_both(
        machines, begin, ["--hostfile", str(tmp_path / "hosts"), "--output", "prefix", str(script(text))]
    )
    assert sorted(done.stdout.splitlines()) == ["[rank 0] 0 ringb", "[rank 1] 1 ringa"], done.stderr


def test_a_failure_on_the_other_host_is_told_with_its_name(machines, begin, script):
    text = """
    from ringlet.comm.world import connect
    comm = connect()
    if comm.rank == 1:
        raise LookupError("over there")
    comm.barrier()
    """
    done = run_on_both(machines, begin, ["--hosts", "ringa:1,ringb:1", str(script(text))])
    assert done.returncode == 1
    assert done.stderr.startswith("rank 1 of 2 on ringb failed:\nTraceback")
    assert done.stderr.rstrip().endswith("LookupError: over there")


def test_a_rank_killed_on_the_other_host_is_told(machines, begin, script):
    text = """
    import os
    from ringlet.comm.world import connect
    comm = connect()
    if comm.rank == 1:
        os.kill(os.getpid(), 9)
    comm.barrier()
    """
    done = run_on_both(machines, begin, ["--hosts", "ringa:1,ringb:1", str(script(text))])
    assert done.returncode == 3
    assert "of 2 on ringb was killed by signal 9 (SIGKILL)" in done.stderr


def test_no_rank_on_any_host_survives_a_killed_launcher(machines, begin, script):
    text = "import signal\nprint('ready', flush=True)\nwhile True:\n    signal.pause()\n"
    command = [sys.executable, "-m", "ringlet", "run", "--hosts", "ringa:1,ringb:1", str(script(text))]
    job = begin(machines.inside(0, command), {**machines.environment, "RINGLET_LAUNCHER": "mpi"})
    job.wait_for("ready", times=2)
    job.process.kill()
    job.process.wait()
    job.wait_until_all_gone()


def test_ssh_gets_the_host_and_words_of_ours_only(machines, begin, script):
    hostile = "; touch hostile $(touch hostile) `touch hostile`"
    done = run_on_both(
        machines, begin, ["--hosts", "ringa:1,ringb:1", str(script("import sys; print(sys.argv[1])")), hostile]
    )
    assert sorted(done.stdout.splitlines()) == sorted([hostile, f"[rank 1] {hostile}"]), done.stderr
    calls = [json.loads(line) for line in machines.record.read_text().splitlines()]
    assert [next(word for word in words if not word.startswith("-")) for words in calls] == ["ringb"]
    assert not any("hostile" in word or "RINGLET" in word for words in calls for word in words)


def test_a_host_that_stays_away_is_left_out(machines, begin, script):
    text = "import os\nprint(os.uname().nodename)\n"
    words = ["--hosts", "ringa:1,ringb:1,ringc:1", "--min-workers", "2", "--output", "prefix", str(script(text))]
    done = run_on_both(machines, begin, words)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[rank 0] ringa", "[rank 1] ringb"]), done.stderr
    assert done.stderr.startswith("left out because they do not answer: ringc; starting 2 of 3 workers\n")


def test_too_few_hosts_are_no_job(machines, begin, script):
    words = ["--hosts", "ringa:1,ringc:1", "--min-workers", "2", str(script("print('ran')"))]
    done = run_on_both(machines, begin, words)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "no answer from ringc: 1 of 2 workers remain, at least 2 are needed\n"


def test_training_goes_on_with_the_hosts_that_remain(machines, begin, tmp_path):
    """The second host dies with its rank: nobody can be started there any more."""
    words = ["train", "--launcher", "mpi", "--hosts", "ringa:1,ringb:1", "--min-workers", "1", "--restarts", "1"]
    words += ["--run-dir", str(tmp_path / "run"), "--model", "simplemlp", "--dataset", "digits", "--shards", "2"]
    words += ["--steps-per-epoch", "5", "--num-epochs", "2", "--checkpoint-every", "2 steps"]
    fault = f"kill@rank=1,step=7,phase=forward,once={tmp_path / 'fault'}"
    environment = {**machines.environment, "RINGLET_FAULT": fault, "RINGLET_RESTART_DELAY": "0"}
    ssh = tmp_path / "ssh"
    ssh.write_text(
        ssh.read_text().replace("import json, os, sys\n", f"{CLOSED.format(fault=str(tmp_path / 'fault'))}\n")
    )
    done = begin(machines.inside(0, [sys.executable, "-m", "ringlet", *words]), environment).finish()
    assert done.returncode == 0, done.stderr
    assert "restart 1 of 1: rank 1 was killed by signal 9 (SIGKILL)" in done.stderr
    assert "left out because they do not answer: ringb; starting 1 of 2 workers" in done.stderr
    events = [json.loads(line) for line in (tmp_path / "run" / "events.ndjson").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "step_finished"] == list(range(1, 11))
    assert [event["num_workers"] for event in events if "num_workers" in event] == [2, 1]
