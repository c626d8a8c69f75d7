"""What is written comes back to the bit, and the store keeps what it should."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from checkpoint_samples import content, make_checkpoint, make_spec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import load_file

from ringlet.checkpoint import Checkpoint, CheckpointStore
from ringlet.checkpoint.atomic import write_directory
from ringlet.checkpoint.contents import read_tensors, write_tensors
from ringlet.errors import CheckpointError
from ringlet.io.safetensors import DTYPES
from ringlet.models.files import load_model_file

Fill = Callable[..., CheckpointStore]

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
WITHOUT_RESET = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


class TestRoundTrip:
    def test_a_checkpoint_comes_back_to_the_bit(self, store: CheckpointStore) -> None:
        written = make_checkpoint(40, optimizer=("first", "second"))
        path = store.write(written)
        assert path.name == "step-00000040"
        assert content(store.load(40)) == content(written)

    @given(data=st.data(), training=st.dictionaries(st.text(), JSON, max_size=5), dtype=st.sampled_from(["<f4", "<f8"]))
    @WITHOUT_RESET
    def test_any_bits_and_any_json_come_back(
        self, tmp_path: Path, data: st.DataObject, training: dict[str, Any], dtype: str
    ) -> None:
        spec = make_spec(num_classes=2)
        floats = st.floats(width=8 * np.dtype(dtype).itemsize)
        tensors = {
            info.name: data.draw(npst.arrays(dtype, info.shape, elements=floats, fill=floats))
            for info in (*spec.parameters, *spec.state)
        }
        state = data.draw(npst.arrays(dtype, spec.num_parameters, elements=floats, fill=floats))
        written = Checkpoint(7, spec, tensors, {"note": "é\n"}, {"velocity": state}, training, {}, {})
        with TemporaryDirectory(dir=tmp_path) as folder:
            store = CheckpointStore(folder)
            store.write(written)
            assert content(store.load(7)) == content(written)

    def test_the_model_is_an_ordinary_model_file(self, store: CheckpointStore) -> None:
        written = make_checkpoint(3)
        model = load_model_file(store.write(written) / "model.safetensors")
        assert model.spec == written.spec
        assert model.metadata == written.metadata
        assert all(np.array_equal(model.tensors[name], array) for name, array in written.tensors.items())

    def test_a_model_alone_has_no_optimizer_file(self, store: CheckpointStore) -> None:
        path = store.write(make_checkpoint(3, optimizer=()))
        assert sorted(file.name for file in path.iterdir()) == ["manifest.json", "model.safetensors"]
        assert store.load(3).optimizer == {}

    def test_arrays_that_are_not_contiguous_are_saved_by_value(self, store: CheckpointStore) -> None:
        written = make_checkpoint(1)
        spread = np.repeat(written.optimizer["velocity"], 2)[::2]
        store.write(replace(written, optimizer={"velocity": spread}))
        assert np.array_equal(store.load(1).optimizer["velocity"], spread)

    def test_files_get_the_users_usual_permissions(self, store: CheckpointStore) -> None:
        before = os.umask(0o027)
        try:
            path = store.write(make_checkpoint(1))
        finally:
            os.umask(before)
        modes = {file.name: file.stat().st_mode & 0o777 for file in (path, *path.iterdir())}
        assert set(modes.values()) == {0o640, 0o750}
        assert modes[path.name] == 0o750


class TestTensors:
    @given(
        arrays=st.dictionaries(
            st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,10}", fullmatch=True),
            st.sampled_from(list(DTYPES.values())).flatmap(
                lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
            ),
            max_size=6,
        )
    )
    @WITHOUT_RESET
    def test_named_arrays_of_all_kinds_come_back(self, tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
        with TemporaryDirectory(dir=tmp_path) as parent:
            folder = Path(parent) / "one"
            write_directory(folder, {"a.safetensors": lambda stream: write_tensors(stream, arrays)}, {})
            both = (read_tensors(folder / "a.safetensors"), load_file(folder / "a.safetensors"))
        for found in both:
            assert found.keys() == arrays.keys()
            for name, array in arrays.items():
                assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
                assert found[name].tobytes() == array.tobytes()

    @pytest.mark.parametrize("name", ["", "../x", "a\0b", "__metadata__ ", "ä", "a/b", "x" * 300])
    def test_names_that_are_no_names_are_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(CheckpointError, match="array name"):
            write_directory(tmp_path / "one", {"a": lambda stream: write_tensors(stream, {name: np.zeros(1)})}, {})
        assert list(tmp_path.iterdir()) == []

    def test_objects_are_refused(self, tmp_path: Path) -> None:
        objects = {"a": np.array([object()])}
        with pytest.raises(CheckpointError, match="of object: expected a NumPy array of"):
            write_directory(tmp_path / "one", {"a": lambda stream: write_tensors(stream, objects)}, {})


class TestWhatCannotBeWritten:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"training": {"loss": float("nan")}}, "finite numbers"),
            ({"training": {1: "a"}}, "key 1 is not a text"),
            ({"training": {"a": [{None: 1}]}}, "key None is not a text"),
            ({"training": {"a": np.float32(1)}}, "JSON"),
            ({"training": {"a": 10**50}}, "out of range"),
            ({"config": {"a": object()}}, "JSON"),
            ({"versions": {"a": 1}}, "texts to texts"),
            ({"step": -1}, "number of updates"),
            ({"step": True}, "number of updates"),
            ({"step": 10**15}, "number of updates"),
            ({"optimizer": {"velocity": np.zeros(3, np.float32)}}, "parameters"),
            ({"optimizer": {"velocity": np.zeros(246, np.int32)}}, "float32 or float64"),
            ({"optimizer": {"a/b": np.zeros(246, np.float32)}}, "letters"),
            ({"tensors": {}}, "is missing"),
            ({"metadata": {"ringlet.spec": "x"}}, "is taken"),
        ],
    )
    def test_is_refused_and_leaves_nothing(self, store: CheckpointStore, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(CheckpointError, match=message):
            store.write(replace(make_checkpoint(1), **changes))
        assert not store.path.exists() or list(store.path.iterdir()) == []

    def test_a_nested_list_without_end_is_refused(self, store: CheckpointStore) -> None:
        endless: list[Any] = []
        endless.append(endless)
        with pytest.raises(CheckpointError, match="JSON"):
            store.write(replace(make_checkpoint(1), training={"a": endless}))

    def test_a_file_in_the_place_of_the_directory_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "checkpoints").write_text("mine")
        with pytest.raises(CheckpointError, match="is not a directory"):
            CheckpointStore(tmp_path / "checkpoints").write(make_checkpoint(1))
        assert (tmp_path / "checkpoints").read_text() == "mine"


class TestNewest:
    def test_none_where_nothing_was_saved(self, store: CheckpointStore) -> None:
        assert store.newest() is None
        assert store.entries() == []

    def test_is_the_one_of_the_latest_step(self, filled: Fill) -> None:
        found = filled(9, 10, 100_000_000).newest()
        assert found is not None
        assert found.step == 100_000_000

    def test_may_be_bounded(self, filled: Fill) -> None:
        store = filled(1, 2, 3)
        assert [getattr(store.newest(at_most=step), "step", None) for step in (0, 1, 2, 9)] == [None, 1, 2, 3]

    def test_passes_over_damaged_ones_and_says_so(self, filled: Fill, said: list[str]) -> None:
        store = filled(1, 2, 3)
        (store.directory(3) / "manifest.json").unlink()
        with (store.directory(2) / "optimizer.safetensors").open("r+b") as file:
            file.truncate(100)
        found = store.newest()
        assert found is not None
        assert content(found) == content(make_checkpoint(1))
        assert [line.rsplit(".", 1)[1] for line in said] == [" Step 1 is used instead"] * 2
        assert "step-00000003 is damaged: manifest.json is missing" in said[0]
        assert "step-00000002 is damaged: optimizer.safetensors has 100 bytes, the manifest says" in said[1]

    def test_is_an_error_if_all_are_damaged(self, filled: Fill) -> None:
        store = filled(1, 2)
        for step in (1, 2):
            (store.directory(step) / "model.safetensors").write_bytes(b"")
        with pytest.raises(CheckpointError, match=r"(?s)00000002 is damaged.*00000001 is damaged.*no other checkpoint"):
            store.newest()

    def test_speaks_through_the_log_unless_told_otherwise(self, filled: Fill, caplog: pytest.LogCaptureFixture) -> None:
        path = filled(1, 2).path
        (path / "step-00000002" / "model.safetensors").write_bytes(b"")
        with caplog.at_level(logging.WARNING):
            CheckpointStore(path).newest()
        assert "step-00000002 is damaged" in caplog.text

    def test_a_missing_step_is_named_with_those_that_exist(self, filled: Fill) -> None:
        with pytest.raises(CheckpointError, match=r"no checkpoint of step 5 in .*: 1, 2"):
            filled(1, 2).load(5)


class TestTheSameStepAgain:
    def test_a_good_one_stays(self, store: CheckpointStore) -> None:
        path = store.write(make_checkpoint(4))
        before = path.stat().st_ino
        assert store.write(make_checkpoint(4)) == path
        assert path.stat().st_ino == before

    def test_a_damaged_one_is_set_aside_and_written_anew(self, filled: Fill, said: list[str]) -> None:
        store = filled(4)
        (store.directory(4) / "model.safetensors").write_bytes(b"hello")
        store.write(make_checkpoint(4))
        assert content(store.load(4)) == content(make_checkpoint(4))
        aside = next(store.path.glob("step-00000004.damaged-*"))
        assert (aside / "model.safetensors").read_bytes() == b"hello"
        assert f"renamed to {aside.name}" in said[0]
        assert store.steps() == [4]


class TestEntries:
    def test_tell_step_size_and_time(self, filled: Fill) -> None:
        store = filled(2, 1)
        entries = store.entries()
        assert [entry.step for entry in entries] == [1, 2]
        for entry in entries:
            assert entry.num_bytes == sum(file.stat().st_size for file in entry.path.iterdir())
            assert entry.time == entry.path.stat().st_mtime
            assert entry.problem is None

    def test_verified_ones_tell_problems_and_content(self, filled: Fill) -> None:
        store = filled(1, 2)
        (store.directory(2) / "optimizer.safetensors").unlink()
        good, damaged = store.entries(verify=True)
        assert good.problem is None
        assert good.checkpoint is not None
        assert good.checkpoint.training == make_checkpoint(1).training
        assert damaged.problem == "optimizer.safetensors is missing"
        assert damaged.checkpoint is None

    def test_other_names_are_no_checkpoints(self, filled: Fill) -> None:
        store = filled(1)
        for name in ("step-1", "step-0000000001", "step-00000001.damaged-abcdef", "Step-00000003", "step-٠٠٠٠٠٠٠٤"):
            (store.path / name).mkdir()
        assert store.steps() == [1]
