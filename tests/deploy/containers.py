"""Containers without an engine: processes in namespaces of their own, as the compose file describes its services.

Each has its own network, host name, process ids, shared memory and mounts. It runs as the account of the image, without
capabilities, and sees the secrets and volumes of its service. When its first process ends, the kernel ends all others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import ringlet

DEPLOY = Path(__file__).parents[2] / "deploy"
ACCOUNT = 1000
SECONDS = 90
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount", "ssh", "ssh-keygen", "/usr/sbin/sshd")
SPACES = ("unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--kill-child", "--mount-proc")
HOME = "/home/ringlet"
START = r"""
set -euo pipefail
name=$1 tables=$2 secrets=$3 work=$4 account=$5; shift 5
hostname "$name"
for table in hosts passwd group; do mount --bind "$tables/$table" "/etc/$table"; done
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
number=0
mount -t tmpfs tmpfs /srv
for folder in $OPENED; do
    number=$((number + 1)); mkdir "/srv/$number"; mount --bind "$folder" "/srv/$number"
done
for parent in $CLOSED; do mount -t tmpfs -o mode=755 tmpfs "$parent"; done
mount -t tmpfs -o mode=755 tmpfs /home
mount -t tmpfs -o mode=755 tmpfs /run
number=0
umask 022
for folder in $OPENED; do
    number=$((number + 1)); mkdir -p "$folder"; mount --bind "/srv/$number" "$folder"
done
install -d -o "$account" -g "$account" /home/ringlet
mkdir -p /run/secrets /run/ringlet
cp -p "$secrets"/* /run/secrets/
cp "$HOSTFILE" /run/ringlet/hostfile
ip link set lo up
echo ready
read -r _
cd "$work"
# No exec: this shell is the first process, root's and tied to the test, until the service has ended.
setpriv --reuid "$account" --regid "$account" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
    env -i HOME=/home/ringlet "PATH=$BIN:/usr/local/bin:/usr/bin:/bin" "PYTHONPATH=$PACKAGES" \
    RINGLET_CACHE=/home/ringlet/cache OMP_NUM_THREADS=1 "$ENTRYPOINT" "$@" || exit "$?"
"""


def compose_services() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"])


def skip_without_namespaces() -> None:
    """Say what is missing on this machine."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(
            f"containers need {', '.join(missing)}: on Debian, apt install openssh-server openssh-client iproute2"
        )
    if os.geteuid() != 0 or subprocess.run([*SPACES, "true"], capture_output=True, timeout=30).returncode != 0:
        pytest.skip("containers need root and namespaces, which are not allowed here")


def first_closed_parent(folder: Path) -> Path | None:
    """The uppermost folder on the way that other accounts may not enter."""
    return next((parent for parent in reversed(folder.parents) if not parent.stat().st_mode & 0o001), None)


@dataclass
class Container:
    """A process that is to become a service."""

    name: str
    process: subprocess.Popen[str]

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def wait_for(self, text: str) -> None:
        """Read along until a line has the text; pytest's time-out is the limit."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if text in line:
                return
        pytest.fail(f"{self.name} ended before {text!r}: {''.join(lines)}")


@dataclass
class Cluster:
    """A folder that all containers share, their keys, and a switch between them."""

    folder: Path
    switch: subprocess.Popen[str]
    stack: contextlib.ExitStack

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def _environment(self) -> Mapping[str, str]:
        packages = Path(ringlet.__file__).resolve().parents[1]
        python = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1]}
        opened = sorted({DEPLOY, packages, self.folder, *python})
        closed = {first_closed_parent(path) for path in opened} - {None}
        inside = [path for path in opened if first_closed_parent(path)]
        return {
            "PATH": os.environ["PATH"],
            "BIN": str(self.folder / "bin"),
            "PACKAGES": str(packages),
            "OPENED": " ".join(map(str, inside)),
            "CLOSED": " ".join(sorted(map(str, closed))),
            "HOSTFILE": str(DEPLOY / "hostfile"),
            "ENTRYPOINT": str(DEPLOY / "entrypoint.sh"),
        }

    def start(self, name: str, command: Sequence[str], address: str) -> Container:
        """A container that is plugged in and waits to go."""
        words = [name, self.folder / "tables", self.folder / f"secrets-{name}", self.work, ACCOUNT, *command]
        process = subprocess.Popen(
            [*SPACES, "bash", "-c", START, "bash", *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment(),
        )
        self.stack.callback(end, process)
        container = Container(name, process)
        container.wait_for("ready")
        self._plug_in(process.pid, name, address)
        return container

    def _plug_in(self, process: int, name: str, address: str) -> None:
        port = f"to-{name}"
        ends = ["name", port, "netns", str(self.switch.pid), "type", "veth", "peer", "name", "eth0"]
        check("ip", "link", "add", *ends, "netns", str(process))
        check("nsenter", "-t", str(self.switch.pid), "-n", "ip", "link", "set", port, "master", "switch", "up")
        check("nsenter", "-t", str(process), "-n", "ip", "address", "add", f"{address}/24", "dev", "eth0")
        check("nsenter", "-t", str(process), "-n", "ip", "link", "set", "eth0", "up")


def check(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@contextlib.contextmanager
def cluster(folder: Path, addresses: Mapping[str, str]) -> Iterator[Cluster]:
    """A cluster of the compose file's services; nothing of it is left afterwards."""
    _write_tables(folder / "tables", addresses)
    _write_secrets(folder)
    program = folder / "bin" / "ringlet"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ringlet "$@"\n')
    program.chmod(0o755)
    (folder / "work").mkdir()
    os.chown(folder / "work", ACCOUNT, ACCOUNT)
    folder.chmod(0o755)
    with contextlib.ExitStack() as stack:
        words = [
            "unshare",
            "--net",
            "sh",
            "-c",
            "ip link add switch type bridge && ip link set switch up && echo && exec cat",
        ]
        switch = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(end, switch)
        assert switch.stdout is not None
        if not switch.stdout.readline():
            pytest.skip("containers need a network bridge, which this kernel does not have")
        yield Cluster(folder, switch, stack)


def _write_tables(folder: Path, addresses: Mapping[str, str]) -> None:
    folder.mkdir()
    lines = "".join(f"{address} {name}\n" for name, address in addresses.items())
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{lines}")
    for table, line in (
        ("passwd", f"ringlet:x:{ACCOUNT}:{ACCOUNT}::{HOME}:/bin/bash"),
        ("group", f"ringlet:x:{ACCOUNT}:"),
    ):
        others = [old for old in Path("/etc", table).read_text().splitlines() if old.split(":")[2] != str(ACCOUNT)]
        (folder / table).write_text("\n".join([*others, line, ""]))


def _write_secrets(folder: Path) -> None:
    """Every service gets the secrets that the compose file grants it, owned by the account as users' files are."""
    made = folder / "keys"
    made.mkdir()
    check("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made / "id_ed25519"))
    for name, service in compose_services().items():
        secrets = folder / f"secrets-{name}"
        secrets.mkdir()
        for secret in service["secrets"]:
            shutil.copy(made / secret, secrets)
            os.chown(secrets / secret, ACCOUNT, ACCOUNT)
