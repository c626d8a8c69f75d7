"""Files made to harm: hashes fit, contents lie. Only CheckpointError leaves, with little memory, and no code runs."""

from __future__ import annotations

import json
import os
import pickle
import random
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from checkpoint_samples import content, make_checkpoint

from ringlet.checkpoint import CheckpointStore
from ringlet.checkpoint.atomic import write_directory
from ringlet.checkpoint.contents import read_history, write_history
from ringlet.checkpoint.manifest import serialise
from ringlet.errors import CheckpointError

NUM_PARAMETERS = make_checkpoint(1).spec.num_parameters
SIZE = 4 * NUM_PARAMETERS
ALLOWANCE = 64 << 20
DANGEROUS = ("exec", "compile", "marshal.", "pickle.", "subprocess.", "os.system", "os.exec", "os.spawn", "socket.")


class _Watch:
    """Audit hooks cannot be taken away again: one for all, active while somebody watches."""

    events: list[str] | None = None
    installed = False


def _audit(event: str, _: object) -> None:
    if _Watch.events is not None and event.startswith(DANGEROUS):
        _Watch.events.append(event)


@contextmanager
def nothing_runs() -> Iterator[None]:
    if not _Watch.installed:
        sys.addaudithook(_audit)
        _Watch.installed = True
    _Watch.events = events = []
    try:
        yield
    finally:
        _Watch.events = None
    assert events == []


@contextmanager
def little_memory(num_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= 2 * num_bytes + ALLOWANCE
    finally:
        tracemalloc.stop()


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, bytes]:
    """The files of a good checkpoint."""
    path = CheckpointStore(tmp_path / "good").write(make_checkpoint(1))
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != "manifest.json"}


def plant(folder: Path, files: dict[str, bytes], **facts: Any) -> CheckpointStore:
    """A checkpoint of step 1 whose hashes all fit."""
    store = CheckpointStore(folder)
    given = {"step": 1, "training": {}, "config": {}, "versions": {}, "optimizer": ["velocity"]}
    store.path.mkdir(exist_ok=True)
    write_directory(store.directory(1), dict(files), {**given, **facts})
    return store


def refuses(store: CheckpointStore) -> str:
    num_bytes = sum(file.stat().st_size for file in store.directory(1).iterdir() if file.is_file())
    with nothing_runs(), little_memory(num_bytes), pytest.raises(CheckpointError) as caught:
        store.load(1)
    return str(caught.value)


def tensors(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header.encode() if isinstance(header, str) else header
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def entry(**changes: Any) -> str:
    description = {"dtype": "F32", "shape": [NUM_PARAMETERS], "data_offsets": [0, SIZE], **changes}
    return json.dumps({"velocity": description})


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ringlet-was-here",)


DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE = {
    "a pickle": pickle.dumps(Bomb()),
    "nothing": b"",
    "a header longer than the world": tensors("{}", length=1 << 63),
    "a header longer than the file": tensors("{}", length=3),
    "no JSON": tensors("{]"),
    "not Unicode": tensors(b"{\xff}"),
    "a list": tensors("[]"),
    "deep nesting": tensors(f'{{"velocity":{DEEP}}}'),
    "deep nesting of mappings": tensors('{"a":' * 100_000 + "1" + "}" * 100_000),
    "duplicate keys": tensors(f"{entry()[:-1]},{entry()[1:]}", bytes(SIZE)),
    "duplicate inner keys": tensors('{"velocity":{"dtype":"F32","dtype":"F64","shape":[0],"data_offsets":[0,0]}}'),
    "a shape of NaN": tensors(entry(shape=[float("nan")]), bytes(SIZE)),
    "a shape of infinity": tensors(entry(shape=[float("inf")]), bytes(SIZE)),
    "a shape of 1e999": tensors(entry().replace(f"[{NUM_PARAMETERS}]", "[1e999]"), bytes(SIZE)),
    "a shape of truth": tensors(entry(shape=[True])),
    "a negative shape": tensors(entry(shape=[-1], data_offsets=[0, 0])),
    "a shape beyond all memory": tensors(entry(shape=[1 << 61, 8], data_offsets=[0, 1 << 66])),
    "an empty shape beyond all memory": tensors(entry(shape=[0, 1 << 61, 1 << 61], data_offsets=[0, 0])),
    "a shape of many dimensions": tensors(entry(shape=[1] * 1000, data_offsets=[0, 4]), bytes(4)),
    "negative offsets": tensors(entry(data_offsets=[-SIZE, 0]), bytes(SIZE)),
    "offsets in the header": tensors(entry(data_offsets=[-8, SIZE - 8]), bytes(SIZE)),
    "offsets beyond the file": tensors(entry(data_offsets=[SIZE, 2 * SIZE]), bytes(SIZE)),
    "offsets that wrap around": tensors(entry(data_offsets=[0, SIZE + (1 << 64)]), bytes(SIZE)),
    "offsets backwards": tensors(entry(data_offsets=[SIZE, 0]), bytes(SIZE)),
    "one offset": tensors(entry(data_offsets=[0]), bytes(SIZE)),
    "overlap": tensors(f"{entry()[:-1]},{entry().replace('velocity', 'second')[1:]}", bytes(SIZE)),
    "a gap": tensors(entry(data_offsets=[4, SIZE + 4]), bytes(SIZE + 4)),
    "bytes behind": tensors(entry(), bytes(SIZE + 1)),
    "bytes missing": tensors(entry(), bytes(SIZE - 1)),
    "a path as a name": tensors(entry().replace("velocity", "../x"), bytes(SIZE)),
    "a zero byte in a name": tensors(entry().replace("velocity", "a\\u0000b"), bytes(SIZE)),
    "an escape in a name": tensors(entry().replace("velocity", "\\u001b[31mred"), bytes(SIZE)),
    "another name": tensors(entry().replace("velocity", "second"), bytes(SIZE)),
    "another dtype": tensors(entry(dtype="OBJECT"), bytes(SIZE)),
    "integers": tensors(entry(dtype="I32"), bytes(SIZE)),
    "too few elements": tensors(entry(shape=[3], data_offsets=[0, 12]), bytes(12)),
    "two dimensions": tensors(entry(shape=[1, NUM_PARAMETERS]), bytes(SIZE)),
    "a description that is none": tensors('{"velocity":7}'),
    "a million values": tensors('{"velocity":[' + "0," * 1_000_000 + "0]}"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_an_optimizer_file_of_bad_intent_is_refused(tmp_path: Path, parts: dict[str, bytes], raw: bytes) -> None:
    message = refuses(plant(tmp_path / "bad", {**parts, "optimizer.safetensors": raw}))
    assert "step-00000001 is damaged: " in message
    assert len(message) < 1000
    assert message.isprintable()


def test_the_good_one_among_them_is_accepted(tmp_path: Path, parts: dict[str, bytes]) -> None:
    good = tensors(entry(), bytes(SIZE))
    store = plant(tmp_path / "bad", {**parts, "optimizer.safetensors": good})
    assert store.load(1).optimizer["velocity"].tobytes() == bytes(SIZE)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "name", ["a pickle", "nothing", "a header longer than the world", "deep nesting", "duplicate keys"]
)
def test_a_model_file_of_bad_intent_is_refused(tmp_path: Path, parts: dict[str, bytes], name: str) -> None:
    refuses(plant(tmp_path / "bad", {**parts, "model.safetensors": HOSTILE[name]}))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_random_changes_with_fitting_hashes_never_raise_anything_else(
    tmp_path: Path, parts: dict[str, bytes], name: str, seed: int
) -> None:
    draw, num_refused = random.Random(seed), 0
    for number in range(200):
        raw = bytearray(parts[name])
        for _ in range(draw.randint(1, 4)):
            raw[draw.randrange(min(len(raw), 400))] = draw.choice(b'\0\xff{}[],:"0123456789-eE.\\ntfN')
        store = plant(tmp_path / f"{number}", {**parts, name: bytes(raw)})
        try:
            store.load(1)
        except CheckpointError:
            num_refused += 1
    assert num_refused > 0


class TestManifests:
    def overwrite(self, tmp_path: Path, parts: dict[str, bytes], raw: bytes) -> CheckpointStore:
        store = plant(tmp_path / "bad", parts)
        (store.directory(1) / "manifest.json").write_bytes(raw)
        return store

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"null",
            b"{}",
            b"\xff",
            b'{"format":1}',
            b'{"format":1e999,"files":{},"sha256":""}',
            b'{"format":NaN,"files":{},"sha256":""}',
            b'{"format":1,"format":1,"files":{},"sha256":""}',
            b'{"format":2,"files":{},"sha256":""}',
            b'{"format":true,"files":{},"sha256":""}',
            b'{"format":1,"files":{},"sha256":7}',
            b'{"format":1,"files":{},"sha256":"' + b"0" * 64 + b'"}',
            DEEP.encode(),
            b'{"a":' * 100_000,
            b"[" + b"1," * 2_000_000 + b"1]",
            b'"' + b"a" * (20 << 20) + b'"',
            b"9" * (9 << 20),
        ],
        ids=range(17),
    )
    def test_that_are_none_are_refused(self, tmp_path: Path, parts: dict[str, bytes], raw: bytes) -> None:
        assert len(refuses(self.overwrite(tmp_path, parts, raw))) < 1000

    def test_with_spaces_are_refused_even_if_they_mean_the_same(self, tmp_path: Path, parts: dict[str, bytes]) -> None:
        store = plant(tmp_path / "bad", parts)
        path = store.directory(1) / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
        assert "own checksum" in refuses(store)

    @pytest.mark.parametrize(
        ("facts", "message"),
        [
            ({"step": 2}, "is of step 2"),
            ({"step": True}, "is of step True"),
            ({"step": 1.0}, "is of step 1.0"),
            ({"training": []}, "training is"),
            ({"config": None}, "config is"),
            ({"versions": {"a": 1}}, "texts to texts"),
            ({"optimizer": "velocity"}, "optimizer is"),
            ({"optimizer": [1]}, "optimizer is"),
            ({"optimizer": ["second"]}, "the manifest says"),
            ({"optimizer": []}, "lists the files"),
            ({"extra": 1}, "holds"),
        ],
    )
    def test_whose_facts_lie_are_refused(
        self, tmp_path: Path, parts: dict[str, bytes], facts: dict[str, Any], message: str
    ) -> None:
        assert message in refuses(plant(tmp_path / "bad", parts, **facts))

    @pytest.mark.parametrize("name", ["../good/step-00000001/x", "/etc/passwd", "a\0b", ".", "..", "", "manifest.json"])
    def test_that_list_other_peoples_files_are_refused(
        self, tmp_path: Path, parts: dict[str, bytes], name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from ringlet.checkpoint import manifest

        facts = {"step": 1, "training": {}, "config": {}, "versions": {}, "optimizer": []}
        monkeypatch.setattr(manifest, "parse", lambda _: None)  # the writer refuses them too
        raw = serialise(facts, {name: manifest.FileFacts(0, "0" * 64)})
        monkeypatch.undo()
        assert "not a plain file name" in refuses(self.overwrite(tmp_path, parts, raw))

    def test_that_are_longer_than_the_disk_say_only_their_size(self, tmp_path: Path, parts: dict[str, bytes]) -> None:
        store = plant(tmp_path / "bad", parts)
        with (store.directory(1) / "optimizer.safetensors").open("r+b") as file:
            file.truncate(1 << 40)
        assert "has 1,099,511,627,776 bytes" in refuses(store)


def test_what_is_only_strange_is_accepted(tmp_path: Path) -> None:
    written = make_checkpoint(0)
    written.training["<script>' OR 1=1--\x1b[31m"] = "\0\ud800"
    store = CheckpointStore(tmp_path / "strange")
    store.write(written)
    assert content(store.load(0)) == content(written)


class TestHistory:
    @pytest.mark.parametrize(
        "text",
        [
            "[]\n",
            "{}",
            '{"loss": []}\n',
            '{"loss": true}\n',
            '{"loss": "x"}\n',
            "\n",
            "{" * 99_999,
            '{"a":1,"a":2}\n',
            "é\n",
        ],
    )
    def test_a_line_that_is_no_row_of_metrics_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "history.ndjson").write_text('{"loss": 0.5}\n' + text)
        with pytest.raises(CheckpointError, match=r"history.ndjson, line 2: "):
            read_history(tmp_path / "history.ndjson")

    def test_numbers_come_back_to_the_bit(self, tmp_path: Path) -> None:
        rows = [{"loss": 0.1 + 0.2, "tiny": 5e-324, "inf": float("inf")}, {"huge": 1.7976931348623157e308}, {}]
        with (tmp_path / "history.ndjson").open("wb") as file:
            write_history(file, rows)
        assert read_history(tmp_path / "history.ndjson") == rows

    def test_a_row_that_could_not_be_read_back_is_not_written(self) -> None:
        with pytest.raises(CheckpointError, match="at most 65,536"):
            write_history(BytesIO(), [{"x" * 70_000: 1.0}])
