"""Everything that the files of deploy/ name exists: files, options, accounts, ports, secrets."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import commands
import pytest
import yaml
from commands import DEPLOY, REPOSITORY, parse, ringlet_commands, shell_lines

from ringlet.cli.main import _ClickException as ParserError
from ringlet.errors import RingletError
from ringlet.launch.plan import read_hostfile

INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "RUN", "USER", "WORKDIR"}
BATCH_SCRIPTS = sorted((REPOSITORY / "examples").glob("*.sbatch"))
SHELL_SCRIPTS = [DEPLOY / "entrypoint.sh", REPOSITORY / ".ci" / "run", *BATCH_SCRIPTS]
PORT = 2222
JOB_FIELDS = {
    "launcherCreationPolicy",
    "mpiImplementation",
    "mpiReplicaSpecs",
    "runLauncherAsWorker",
    "runPolicy",
    "slotsPerWorker",
    "sshAuthMountPath",
}
"""Fields of an MPIJob, API v2beta1."""


def instructions() -> list[tuple[str, str]]:
    """(name, rest) of every instruction of the Dockerfile."""
    return [tuple(line.split(maxsplit=1)) for line in shell_lines((DEPLOY / "Dockerfile").read_text())]  # type: ignore[misc]


def instruction(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def arguments() -> dict[str, str]:
    return dict(rest.split("=", 1) for rest in instruction("ARG"))


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def job() -> tuple[dict[str, Any], dict[str, Any]]:
    """The claim and the MPIJob."""
    claim, found = yaml.safe_load_all((DEPLOY / "mpijob.yaml").read_text())
    return claim, found


def is_sent_to_the_builder(name: str) -> bool:
    """By .dockerignore: the last pattern that fits decides."""
    sent = True
    for line in shell_lines((REPOSITORY / ".dockerignore").read_text()):
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = [name, *map(str, Path(name).parents)]
        if pattern == "*" or any(fnmatch(part, pattern) for part in parts):
            sent = line.startswith("!")
    return sent


def test_every_instruction_of_the_dockerfile_is_one() -> None:
    assert {name for name, _ in instructions()} <= INSTRUCTIONS
    for name in ("ENTRYPOINT", "CMD"):
        assert all(isinstance(json.loads(rest), list) for rest in instruction(name))
    for command in instruction("RUN"):
        assert subprocess.run(["bash", "-n", "-c", command], timeout=30).returncode == 0, command


def test_every_file_that_is_copied_into_the_image_exists_and_is_sent() -> None:
    names = [word for rest in instruction("COPY") if "--from" not in rest for word in rest.split()[:-1]]
    assert {"src", "native", "pyproject.toml", "deploy/entrypoint.sh"} <= set(names)
    assert not [name for name in names if not (REPOSITORY / name).exists() or not is_sent_to_the_builder(name)]
    kept_out = ("deploy/keys/id_ed25519", ".git", ".venv", "runs", "src/ringlet/kernels/_native.so")
    assert not [name for name in kept_out if is_sent_to_the_builder(name)]


def test_the_image_runs_the_entry_point_as_an_account_without_rights() -> None:
    assert instruction("USER") == ["ringlet"]
    assert f'--uid "${{ACCOUNT}}" {instruction("USER")[0]}' in " ".join(instruction("RUN"))
    assert json.loads(instruction("ENTRYPOINT")[0]) == ["/opt/deploy/entrypoint.sh"]
    (copied,) = (rest for rest in instruction("COPY") if "entrypoint.sh" in rest)
    assert copied.split()[-1] == "/opt/deploy/"
    assert {"deploy/sshd_config", "deploy/ssh_config"} <= set(copied.split())
    assert os.access(DEPLOY / "entrypoint.sh", os.X_OK)


def test_the_image_holds_no_key() -> None:
    assert "rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*" in " ".join(instruction("RUN"))
    assert not [rest for rest in instruction("COPY") if "key" in rest]
    ignored = subprocess.run(["git", "check-ignore", "-q", "deploy/keys/id_ed25519"], cwd=REPOSITORY, timeout=30)
    assert ignored.returncode in (0, 128), "keys are not ignored"  # 128: not a git repository


def test_extras_of_the_image_exist() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(arguments()["EXTRAS"].split(",")) <= extras.keys()


def test_one_port_everywhere() -> None:
    assert instruction("EXPOSE") == [str(PORT)]
    assert f"${{RINGLET_SSH_PORT:-{PORT}}}" in (DEPLOY / "entrypoint.sh").read_text()
    health = compose()["services"]["worker1"]["healthcheck"]["test"]
    assert health[-1].endswith(f"/dev/tcp/127.0.0.1/{PORT}")
    worker = job()[1]["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert worker["readinessProbe"]["tcpSocket"]["port"] == PORT


def test_ssh_reads_its_configuration() -> None:
    if shutil.which("ssh") is None:
        pytest.skip("needs ssh: on Debian, apt install openssh-client")
    words = ["ssh", "-G", "-F", str(DEPLOY / "ssh_config"), "worker1"]
    client = subprocess.run(words, capture_output=True, text=True, timeout=30)
    expected = {"user ringlet", "batchmode yes", "stricthostkeychecking accept-new", "forwardagent no"}
    assert expected <= set(client.stdout.splitlines()), client.stderr


def test_the_compose_file_names_what_exists() -> None:
    file = compose()
    for service in file["services"].values():
        context = (DEPLOY / service["build"]["context"]).resolve()
        assert (context / service["build"]["dockerfile"]).is_file()
        assert service["build"]["args"].keys() <= arguments().keys()
        assert set(service["secrets"]) <= file["secrets"].keys()
        for source, *_ in (volume.split(":") for volume in service["volumes"]):
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in file["volumes"]
    assert {secret["file"] for secret in file["secrets"].values()} == {"./keys/id_ed25519", "./keys/id_ed25519.pub"}


def test_the_host_file_has_the_workers_of_the_compose_file() -> None:
    services = compose()["services"]
    workers = {name for name, service in services.items() if service["command"] == ["worker"]}
    hosts = read_hostfile(DEPLOY / "hostfile")
    assert {host.name for host in hosts} == workers == services["master"]["depends_on"].keys()
    assert all(services[name]["hostname"] == name for name in services)
    role, program, *words = services["master"]["command"]
    options = parse(words)
    assert (role, program, options["num_workers"]) == ("master", "ringlet", sum(host.slots for host in hosts))
    assert f"./hostfile:{options['hostfile']}:ro" in services["master"]["volumes"]


def test_private_keys_are_for_the_master_alone() -> None:
    services = compose()["services"]
    assert [name for name, service in services.items() if "id_ed25519" in service["secrets"]] == ["master"]


def test_the_job_for_kubernetes_fits_the_image() -> None:
    claim, found = job()
    assert (found["apiVersion"], found["kind"], found["spec"]["mpiImplementation"]) == (
        "kubeflow.org/v2beta1",
        "MPIJob",
        "MPICH",
    )
    assert found["spec"].keys() <= JOB_FIELDS
    for replicas in found["spec"]["mpiReplicaSpecs"].values():
        pod = replicas["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsUser"] == int(arguments()["ACCOUNT"])
        assert {"name": "RINGLET_KEYS", "value": found["spec"]["sshAuthMountPath"]} in container["env"]
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert [mount["name"] for mount in container["volumeMounts"]] == [pod["volumes"][0]["name"]]
    launcher, worker = (found["spec"]["mpiReplicaSpecs"][name]["template"]["spec"] for name in ("Launcher", "Worker"))
    role, program, *words = launcher["containers"][0]["args"]
    assert (role, program, str(parse(words)["hostfile"])) == ("master", "ringlet", "/etc/mpi/hostfile")
    assert worker["containers"][0]["args"] == ["worker"]


@pytest.mark.parametrize("script", SHELL_SCRIPTS, ids=lambda path: path.name)
def test_shell_scripts_are_sound(script: Path) -> None:
    assert subprocess.run(["bash", "-n", script], timeout=30).returncode == 0
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    checked = subprocess.run(["shellcheck", "-e", "SC1091", script], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("script", BATCH_SCRIPTS, ids=lambda path: path.name)
def test_batch_scripts_call_what_exists(script: Path) -> None:
    text = script.read_text()
    body = text.index("\nsource ")
    assert text.startswith("#!/bin/bash\n")
    assert "#SBATCH" not in text[body:], "Slurm does not read options behind the first command"
    found = list(ringlet_commands(shell_lines(text)))
    assert found
    for words in found:
        options = parse(words)
        if words[0] == "run":
            program, *rest = options["command"]
            known = set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', (REPOSITORY / program).read_text()))
            assert {word for word in rest if word.startswith("--")} <= known


def test_every_command_of_the_page_can_be_parsed() -> None:
    page = REPOSITORY / "docs" / "deployment.md"
    lines = commands.fenced_lines(page)
    found = list(ringlet_commands(lines))
    assert {words[0] for words in found} >= {"train", "run", "bench"}
    for words in found:
        parse(words)
    for line in lines:
        for word in shlex.split(line, comments=True):
            if word.startswith(("deploy/", "examples/")) and not word.startswith("deploy/keys"):
                assert (REPOSITORY / word).exists(), line
    for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize(
    "words", [["train", "--hostfiel", "x"], ["train", "--model", "nosuch"], ["run", "examples/no.py"]]
)
def test_a_wrong_command_would_be_found(words: list[str]) -> None:
    with pytest.raises((AssertionError, RingletError, ParserError), match=r"hostfiel|nosuch|no\.py"):
        parse(words)
