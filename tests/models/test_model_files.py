"""Model files give back what was saved, and whatever else they hold is refused with one kind of error."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct

import numpy as np
import pytest
from safetensors import safe_open

from ringlet.errors import ModelFileError
from ringlet.models import files, zoo
from ringlet.models.files import load_model_file, save_model
from ringlet.models.initializers import initialize

METADATA = {"labels": '["cat","dög"]', "normalization": '{"mean":[0.5]}'}


@pytest.fixture
def tensors(tiny_spec):
    return initialize(tiny_spec, seed=1)


@pytest.fixture
def saved(tmp_path, tiny_spec, tensors):
    return save_model(tmp_path / "model.safetensors", tiny_spec, tensors, METADATA)


def split(path):
    """The header as a dict and the tensors' bytes."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def join(path, header, data):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


class TestRoundTrip:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_spec_tensors_and_metadata_come_back(self, tmp_path, tiny_spec, dtype):
        tensors = initialize(tiny_spec, 2, dtype)
        loaded = load_model_file(save_model(tmp_path / "m", tiny_spec, tensors, METADATA))
        assert (loaded.spec, loaded.metadata) == (tiny_spec, METADATA)
        assert loaded.tensors.keys() == tensors.keys()
        assert all(np.array_equal(loaded.tensors[name], tensors[name]) for name in tensors)
        assert {array.dtype for array in loaded.tensors.values()} == {np.dtype(dtype)}

    def test_the_safetensors_library_reads_the_file(self, saved, tensors):
        with safe_open(saved, framework="numpy") as file:
            assert set(file.keys()) == set(tensors)
            assert file.metadata()["ringlet.format"] == "1"

    def test_loaded_tensors_can_be_changed(self, saved):
        load_model_file(saved).tensors["dense1.bias"][:] = 1

    def test_non_contiguous_tensors_are_saved_as_they_look(self, tmp_path, tiny_spec, tensors):
        tensors["dense1.weight"] = np.asfortranarray(tensors["dense1.weight"])
        loaded = load_model_file(save_model(tmp_path / "m", tiny_spec, tensors))
        assert np.array_equal(loaded.tensors["dense1.weight"], tensors["dense1.weight"])

    def test_a_symbolic_link_is_followed(self, tmp_path, saved, tiny_spec):
        (tmp_path / "link").symlink_to(saved)
        assert load_model_file(tmp_path / "link").spec == tiny_spec

    def test_saving_replaces_the_old_file_and_leaves_nothing_beside_it(self, saved, tiny_spec):
        save_model(saved, tiny_spec, initialize(tiny_spec, seed=9), {})
        assert [path.name for path in saved.parent.iterdir()] == [saved.name]
        assert load_model_file(saved).metadata == {}

    def test_the_file_has_the_users_usual_permissions(self, saved, tmp_path):
        (tmp_path / "plain").touch()
        assert saved.stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_a_network_with_many_nodes_fits(self, tmp_path):
        spec = zoo.create("resnet110")
        assert load_model_file(save_model(tmp_path / "m", spec, initialize(spec))).spec == spec


class TestRefusedOnSaving:
    def test_a_missing_tensor(self, tmp_path, tiny_spec, tensors):
        del tensors["dense1.bias"]
        with pytest.raises(ModelFileError, match=r"tensor 'dense1.bias' of model 'tiny' is missing"):
            save_model(tmp_path / "m", tiny_spec, tensors)

    def test_a_foreign_tensor(self, tmp_path, tiny_spec, tensors):
        with pytest.raises(ModelFileError, match="'extra' does not belong"):
            save_model(tmp_path / "m", tiny_spec, {**tensors, "extra": np.zeros(1, "float32")})

    def test_a_wrong_shape(self, tmp_path, tiny_spec, tensors):
        tensors["dense1.bias"] = np.zeros(5, "float32")
        with pytest.raises(ModelFileError, match=r"shape \(5,\), model 'tiny' needs \(4,\)"):
            save_model(tmp_path / "m", tiny_spec, tensors)

    @pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
    def test_mixed_or_unknown_dtypes(self, tmp_path, tiny_spec, tensors, dtype):
        tensors["dense1.bias"] = tensors["dense1.bias"].astype(dtype)
        with pytest.raises(ModelFileError, match="all float32 or all float64"):
            save_model(tmp_path / "m", tiny_spec, tensors)

    @pytest.mark.parametrize("metadata", [{"ringlet.spec": "x"}, {"a": 1}, {1: "a"}, {"a": "\ud800"}])
    def test_metadata_that_is_not_text_or_takes_our_names(self, tmp_path, tiny_spec, tensors, metadata):
        with pytest.raises(ModelFileError, match="metadata"):
            save_model(tmp_path / "m", tiny_spec, tensors, metadata)

    def test_a_folder_that_does_not_exist(self, tmp_path, tiny_spec, tensors):
        with pytest.raises(ModelFileError, match="cannot write model file"):
            save_model(tmp_path / "none" / "m", tiny_spec, tensors)

    @pytest.mark.parametrize("path", ["", "/", "a\0b"])
    def test_a_path_that_names_no_file(self, tiny_spec, tensors, path):
        with pytest.raises(ModelFileError, match="cannot write model file"):
            save_model(path, tiny_spec, tensors)

    def test_a_failed_write_keeps_the_old_file(self, saved, tiny_spec, tensors, monkeypatch):
        before = saved.read_bytes()

        def fail(stream, *args):
            stream.write(b"half of it")
            raise OSError("no space left")

        monkeypatch.setattr(files, "write_tensors", fail)
        with pytest.raises(ModelFileError, match="no space left"):
            save_model(saved, tiny_spec, tensors)
        assert [path.name for path in saved.parent.iterdir()] == [saved.name]
        assert saved.read_bytes() == before


class TestHostileFiles:
    def test_flipped_bits_are_noticed(self, saved):
        raw = saved.read_bytes()
        random_bits = random.Random(0).sample(range(len(raw) * 8), 1500)
        for bit in [*range(64), *random_bits]:
            damaged = bytearray(raw)
            damaged[bit // 8] ^= 1 << bit % 8
            saved.write_bytes(damaged)
            with pytest.raises(ModelFileError):
                load_model_file(saved)

    def test_every_truncation_is_noticed(self, saved):
        raw = saved.read_bytes()
        for length in [*range(20), *range(20, len(raw), 37), len(raw) - 1]:
            saved.write_bytes(raw[:length])
            with pytest.raises(ModelFileError):
                load_model_file(saved)

    def test_bytes_after_the_end_are_noticed(self, saved):
        saved.write_bytes(saved.read_bytes() + b"\0")
        with pytest.raises(ModelFileError, match="truncated or damaged"):
            load_model_file(saved)

    @pytest.mark.parametrize("length", [0, 1, 1 << 32, 1 << 63, (1 << 64) - 1])
    def test_an_absurd_header_length(self, saved, length):
        saved.write_bytes(struct.pack("<Q", length) + saved.read_bytes()[8:])
        with pytest.raises(ModelFileError):
            load_model_file(saved)

    def test_a_renamed_pickle_is_never_run(self, tmp_path):
        class Bomb:
            def __reduce__(self):
                return (os.mkdir, (str(tmp_path / "exploded"),))

        path = tmp_path / "model.safetensors"
        path.write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(ModelFileError, match="not a safetensors file or is truncated"):
            load_model_file(path)
        assert not (tmp_path / "exploded").exists()

    def test_a_plain_safetensors_file_says_that_it_is_not_ours(self, saved):
        header, data = split(saved)
        del header["__metadata__"]
        with pytest.raises(ModelFileError, match="it was not written by Ringlet"):
            load_model_file(join(saved, header, data))

    def test_a_format_of_the_future(self, saved):
        header, data = split(saved)
        header["__metadata__"]["ringlet.format"] = "2"
        with pytest.raises(ModelFileError, match="has format '2', this version of Ringlet reads format 1"):
            load_model_file(join(saved, header, data))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"shape": [5]}, r"has shape \[5\], the network needs \(4,\)"),
            ({"shape": [4.0]}, "has shape"),
            ({"shape": "4"}, "has shape"),
            ({"dtype": "F16"}, "has dtype 'F16'"),
            ({"dtype": ["F32"]}, "has dtype"),
            ({"dtype": "F64"}, "mixes float32 and float64"),
            ({"data_offsets": [0, 16]}, "lies at bytes"),
            ({"data_offsets": [-16, 0]}, "expected two positions"),
            ({"data_offsets": [1 << 62, 1 << 63]}, "expected two positions"),
            ({"data_offsets": [True, 16]}, "expected two positions"),
            ({"data_offsets": None}, "expected two positions"),
            ({"more": 1}, "is not described by"),
        ],
    )
    def test_a_tensor_described_wrongly(self, saved, change, message):
        header, data = split(saved)
        header["dense1.bias"].update(change)
        with pytest.raises(ModelFileError, match=message):
            load_model_file(join(saved, header, data))

    def test_a_missing_tensor(self, saved):
        header, data = split(saved)
        del header["norm1.running_var"]
        with pytest.raises(ModelFileError, match=r"tensor 'norm1.running_var' of model 'tiny' is missing"):
            load_model_file(join(saved, header, data))

    def test_a_foreign_tensor(self, saved):
        header, data = split(saved)
        header["x.weight"] = header["dense1.bias"]
        with pytest.raises(ModelFileError, match=r"'x.weight' does not belong"):
            load_model_file(join(saved, header, data))

    @pytest.mark.parametrize(
        "header",
        [
            "[]",
            "3",
            "{",
            '{"a":1,"a":2}',
            "[" * 100_000,
            '{"__metadata__":3}',
            '{"__metadata__":{"ringlet.spec":1}}',
            "\udcff",
        ],
    )
    def test_a_header_of_another_kind(self, saved, header):
        raw = header.encode("utf-8", "surrogateescape")
        saved.write_bytes(struct.pack("<Q", len(raw)) + raw)
        with pytest.raises(ModelFileError):
            load_model_file(saved)

    def test_a_spec_that_cannot_exist(self, saved):
        header, data = split(saved)
        header["__metadata__"]["ringlet.spec"] = "{}"
        with pytest.raises(ModelFileError, match=r"model file .*exactly the keys format, name, nodes"):
            load_model_file(join(saved, header, data))

    def test_a_spec_with_absurdly_large_tensors_allocates_nothing(self, saved):
        header, data = split(saved)
        spec = header["__metadata__"]["ringlet.spec"].replace('"units":4', '"units":200000000')
        header["__metadata__"]["ringlet.spec"] = spec
        with pytest.raises(ModelFileError, match="the network needs"):
            load_model_file(join(saved, header, data))

    def test_a_missing_file_and_a_folder(self, tmp_path):
        with pytest.raises(ModelFileError, match="cannot read model file"):
            load_model_file(tmp_path / "none")
        with pytest.raises(ModelFileError, match="is not a regular file"):
            load_model_file(tmp_path)
        with pytest.raises(ModelFileError, match="cannot read model file"):
            load_model_file("a\0b")

    def test_a_pipe_is_refused_without_waiting(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ModelFileError, match="is not a regular file"):
            load_model_file(tmp_path / "pipe")
