"""The workflows: what they call exists, and a release tests what it builds before it is published."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from typing import Any

import packages
import pytest
import yaml

import ringlet
from ringlet.cli.train import command

ROOT = packages.REPOSITORY
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
KNOWN_PROGRAMS = {"grep", "pipx"}


def read(name: str) -> dict[Any, Any]:
    return dict(yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text()))


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_calls_exists(path: Any) -> None:
    workflow = read(path.name)
    assert workflow[True], "it has no trigger"  # YAML reads the key `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert set(job.get("needs", [])) <= workflow["jobs"].keys()
        assert ("uses" in job) != ("runs-on" in job)
        if "uses" in job:
            called = job["uses"].removeprefix("./").partition("/workflows/")[2]
            assert "workflow_call" in read(called)[True]
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), "a tag or branch may change"
        else:
            program, *arguments = shlex.split(step["run"])
            assert program != "pipx" or re.fullmatch(r"[a-z]+==[\d.]+", arguments[1]), "a version, not the newest"
            is_script = (ROOT / program).is_file() and os.access(ROOT / program, os.X_OK)
            assert is_script or program in KNOWN_PROGRAMS, program


def test_tests_are_those_of_every_day() -> None:
    assert [step["run"] for step in steps(read("test.yml")) if "run" in step] == [".ci/run"]


def test_nothing_is_published_before_all_is_tested_and_built() -> None:
    jobs = read("release.yml")["jobs"]
    publish = jobs["publish"]
    assert set(publish["needs"]) == jobs.keys() - {"publish"}
    assert publish["if"] == "github.ref_type == 'tag'"
    assert publish["permissions"] == {"id-token": "write"}, "trusted publishing needs this and no more"
    assert not re.search(r"secrets\.|password|token:(?! write)", (ROOT / ".github/workflows/release.yml").read_text())
    uploads = [step["with"]["name"] for step in steps(read("release.yml")) if "upload-artifact" in step.get("uses", "")]
    assert len(uploads) == 2
    assert all(name.startswith("package-") for name in uploads)


def test_the_tag_must_be_the_version() -> None:
    """The line that the workflow looks for is a whole line of the one place."""
    (check,) = (step["run"] for step in steps(read("release.yml")) if "GITHUB_REF_NAME" in step.get("run", ""))
    _, options, pattern, file = shlex.split(check)
    line = pattern.replace("${GITHUB_REF_NAME#v}", ringlet.__version__)
    assert options == "-qxF"
    assert line in (ROOT / file).read_text().splitlines()


def test_wheels_are_built_for_every_declared_python_and_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    settings = project["tool"]["cibuildwheel"]
    declared = re.findall(r"Python :: 3\.(\d+)", " ".join(project["project"]["classifiers"]))
    assert settings["build"] == [f"cp3{minor}-*" for minor in declared]
    kernels, training = (shlex.split(text) for text in settings["test-command"])
    exec(compile(kernels[-1], "test-command", "exec"), {})
    assert training[:2] == ["ringlet", "train"]
    command().make_context("train", training[2:])
    runners = read("release.yml")["jobs"]["wheels"]["strategy"]["matrix"]["runner"]
    assert {"ubuntu-24.04", "ubuntu-24.04-arm", "macos-14"} <= set(runners)
