"""Every kind of damage is found, the checkpoint before is used, and that is said."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_samples import content, make_checkpoint

from ringlet.checkpoint import CheckpointStore
from ringlet.checkpoint.manifest import parse
from ringlet.errors import CheckpointError

Fill = Callable[..., CheckpointStore]
NUM_CORRUPTIONS = 1000
FILES = ("manifest.json", "model.safetensors", "optimizer.safetensors")


def flip_a_bit(raw: bytes, draw: random.Random) -> bytes:
    position = draw.randrange(len(raw))
    return raw[:position] + bytes([raw[position] ^ 1 << draw.randrange(8)]) + raw[position + 1 :]


def truncate(raw: bytes, draw: random.Random) -> bytes:
    return raw[: draw.randrange(len(raw))]


def blank_a_block(raw: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(raw))
    stop = min(start + draw.randint(1, 512), len(raw))
    filler = b"\xff" if not any(raw[start:stop]) else b"\0"
    return raw[:start] + filler * (stop - start) + raw[stop:]


def lengthen(raw: bytes, draw: random.Random) -> bytes:
    return raw + draw.randbytes(draw.randint(1, 9))


def test_a_thousand_corruptions_are_all_found_and_the_one_before_is_used(
    filled: Fill, said: list[str], seed: int
) -> None:
    draw, store = random.Random(seed), filled(1, 2)
    good = content(make_checkpoint(1))
    damages = [flip_a_bit] * 5 + [truncate] * 3 + [blank_a_block, lengthen]
    for number in range(NUM_CORRUPTIONS):
        path, damage = store.directory(2) / draw.choice(FILES), draw.choice(damages)
        raw = path.read_bytes()
        path.write_bytes(damage(raw, draw))
        said.clear()
        found = store.newest()
        assert found is not None
        assert content(found) == good, f"corruption {number} of seed {seed}: {damage.__name__} of {path.name}"
        assert len(said) == 1
        assert "step-00000002 is damaged" in said[0]
        assert said[0].endswith("Step 1 is used instead")
        path.write_bytes(raw)
    assert content(store.load(2)) == content(make_checkpoint(2))


def test_every_single_flipped_bit_of_a_manifest_is_found(filled: Fill) -> None:
    raw = (filled(1).directory(1) / "manifest.json").read_bytes()
    for position in range(len(raw)):
        for bit in range(8):
            damaged = raw[:position] + bytes([raw[position] ^ 1 << bit]) + raw[position + 1 :]
            with pytest.raises(CheckpointError):
                parse(damaged)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(filled: Fill, name: str) -> None:
    store = filled(1)
    (store.directory(1) / name).unlink()
    with pytest.raises(CheckpointError, match=f"step-00000001 is damaged: {name} is missing"):
        store.load(1)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_checkpoint_is_found(filled: Fill, name: str) -> None:
    store = filled(1, 2)
    shutil.copy(store.directory(1) / name, store.directory(2) / name)
    with pytest.raises(CheckpointError, match=r"checksum|is of step 1|has .* bytes, the manifest says"):
        store.load(2)


def test_two_files_that_were_swapped_are_found(filled: Fill) -> None:
    store = filled(1)
    model, optimizer = (store.directory(1) / name for name in FILES[1:])
    content_of_model = model.read_bytes()
    model.write_bytes(optimizer.read_bytes())
    optimizer.write_bytes(content_of_model)
    with pytest.raises(CheckpointError, match="damaged"):
        store.load(1)


def test_a_renamed_checkpoint_is_found(filled: Fill) -> None:
    store = filled(1)
    store.directory(1).rename(store.directory(2))
    with pytest.raises(CheckpointError, match="is of step 1, its directory of step 2"):
        store.load(2)


def test_an_empty_directory_is_no_checkpoint(filled: Fill) -> None:
    store = filled(1)
    store.directory(2).mkdir()
    with pytest.raises(CheckpointError, match=r"manifest\.json is missing"):
        store.load(2)


def test_a_foreign_file_beside_does_no_harm(filled: Fill) -> None:
    store = filled(1)
    (store.directory(1) / "notes.txt").write_text("mine")
    assert content(store.load(1)) == content(make_checkpoint(1))


class TestLinksAndDevices:
    @pytest.mark.parametrize("name", FILES)
    def test_a_linked_file_is_refused_even_if_its_content_is_right(
        self, filled: Fill, tmp_path: Path, name: str
    ) -> None:
        store = filled(1)
        (store.directory(1) / name).rename(tmp_path / name)
        (store.directory(1) / name).symlink_to(tmp_path / name)
        with pytest.raises(CheckpointError, match=f"'{name}' in it is a link"):
            store.load(1)

    def test_a_linked_directory_is_refused(self, filled: Fill, tmp_path: Path) -> None:
        store = filled(1)
        store.directory(1).rename(tmp_path / "elsewhere")
        store.directory(1).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(CheckpointError, match="not a directory of its own"):
            store.load(1)

    @pytest.mark.parametrize("name", FILES)
    def test_a_pipe_is_refused_without_waiting_for_a_writer(self, filled: Fill, name: str) -> None:
        store = filled(1)
        (store.directory(1) / name).unlink()
        os.mkfifo(store.directory(1) / name)
        with pytest.raises(CheckpointError, match="not a regular file"):
            store.load(1)

    def test_a_file_in_the_place_of_a_checkpoint_is_damage(self, filled: Fill) -> None:
        store = filled(1)
        store.directory(2).write_text("")
        assert [entry.problem is None for entry in store.entries(verify=True)] == [True, False]
