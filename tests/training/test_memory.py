"""A batch that does not fit is refused before anything is allocated; memory that runs out is a clean error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringlet import RunConfig, Trainer, load_model
from ringlet.cli.main import main
from ringlet.comm.single import SingleCommunicator
from ringlet.engines.engine import ENGINES
from ringlet.engines.native import NativeReplica
from ringlet.errors import ConfigError
from ringlet.models import zoo
from ringlet.training import memory
from ringlet.training.memory import Demand, explain_lack, is_memory_error, largest_batch
from ringlet.training.session import Session

LOSS = "categorical_cross_entropy"


def demand(engine: str = "native", **options: Any) -> Demand:
    return Demand(zoo.create("simplecnn"), ENGINES.create(engine), LOSS, "float32", num_optimizer_arrays=2, **options)


@pytest.fixture
def with_bytes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let so many bytes be available."""
    return lambda number: monkeypatch.setattr(memory, "available_bytes", lambda: number)


def test_the_native_engine_is_refused_at_the_size_of_its_plan() -> None:
    arena = NativeReplica(zoo.create("simplecnn"), local_batch_size=64).plan.memory_bytes
    need = demand().certain(64, 1)
    assert demand().memory(64, 1).activations == arena
    assert arena < need < arena + (4 << 20)
    assert explain_lack(demand(), 64, 1, 1, need) == ""
    assert "a pass over 64 samples" in explain_lack(demand(), 64, 1, 1, need - 1)


@pytest.mark.parametrize("num_workers", [2, 5])
def test_every_worker_of_a_machine_needs_its_own_activations(num_workers: int) -> None:
    need = num_workers * demand().certain(64, num_workers)
    assert explain_lack(demand(), 64, num_workers, num_workers, need) == ""
    words = explain_lack(demand(), 64, num_workers, num_workers, need - 1)
    assert f"for each of {num_workers} workers of this machine" in words


def test_an_estimate_refuses_only_what_is_clearly_impossible() -> None:
    whole = demand("torch").memory(4096, 1).total
    assert explain_lack(demand("torch"), 4096, 1, 1, int(0.7 * whole)) == ""
    assert "needs about" in explain_lack(demand("torch"), 4096, 1, 1, int(0.3 * whole))


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_the_largest_batch_that_is_named_fits_and_no_larger_one_does(engine: str) -> None:
    wanted, available = demand(engine), 50 << 20
    largest = largest_batch(wanted, 100_000, 2, available)
    assert 2 * wanted.memory(largest, 2).total <= available < 2 * wanted.memory(largest + 1, 2).total
    words = explain_lack(wanted, 100_000, 2, 6, available)
    assert (
        f"The largest batch that fits is {largest:,} (--local-batch-size), a global batch of {6 * largest:,}" in words
    )


def test_a_network_of_which_not_one_sample_fits_is_told() -> None:
    assert "Not even one sample fits" in explain_lack(demand(), 64, 1, 1, 1 << 20)


def test_activations_on_a_gpu_do_not_count() -> None:
    assert explain_lack(demand("torch", on_gpu=True), 4096, 1, 1, 200 << 20) == ""


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_run_that_does_not_fit_ends_before_anything_is_made(
    small_config: Callable[..., RunConfig], with_bytes: Callable[[int], None], own_folder: Any, engine: str
) -> None:
    pytest.importorskip("torch")
    with_bytes(1 << 20)
    config = small_config(batch_size=None, global_batch_size=1000, num_samples=1000, engine=engine, run_dir="out")
    with pytest.raises(ConfigError, match=r"a pass over 900 samples.*1 MiB are available. The largest batch"):
        Session.open(config)
    assert list(own_folder.iterdir()) == []


def test_more_passes_fit_where_one_does_not(with_bytes: Callable[[int], None]) -> None:
    with_bytes(1 << 20)
    options = {"model": "simplecnn", "dataset": "digits", "num_samples": 1000, "num_epochs": 1, "threads": 1}
    with pytest.raises(ConfigError, match="--accumulate"):
        Trainer(**options, global_batch_size=800, communicator=SingleCommunicator())
    Trainer(**options, global_batch_size=800, accumulate=16, communicator=SingleCommunicator()).fit()


def test_the_check_can_be_switched_off(
    small_trainer: Callable[..., Trainer], with_bytes: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bytes(1 << 10)
    with pytest.raises(ConfigError, match="RINGLET_MEMORY_CHECK=off"):
        small_trainer()
    monkeypatch.setenv("RINGLET_MEMORY_CHECK", "off")
    small_trainer().fit(1)


def test_a_saved_model_is_checked_for_the_batch_that_it_predicts(
    small_trainer: Callable[..., Trainer], with_bytes: Callable[[int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    small_trainer().save("model.safetensors")
    with_bytes(8 << 20)
    with pytest.raises(ConfigError, match=r"pass over 50,000 samples.*\(--batch-size\)"):
        load_model("model.safetensors", batch_size=50_000)
    assert main(["evaluate", "model.safetensors", "--batch-size", "50000"]) == 2
    assert "The largest batch that fits is" in capfd.readouterr().err


class ResourceExhaustedError(Exception):
    """As TensorFlow's."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (np._core._exceptions._ArrayMemoryError((10,), np.dtype(np.uint8)), True),  # type: ignore[attr-defined]
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate"), True),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 80 bytes."), True),
        (ResourceExhaustedError("OOM when allocating tensor"), True),
        (RuntimeError("shapes do not fit"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_of_memory_are_known_by_what_frameworks_raise(error: Exception, expected: bool) -> None:
    assert is_memory_error(error) == expected


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate 359. GiB"), RuntimeError("can't allocate memory")])
@pytest.mark.parametrize("place", ["prepare", "loss_and_gradients", "evaluate", "predict"])
def test_memory_that_runs_out_in_a_pass_is_a_clean_error(
    small_trainer: Callable[..., Trainer], place: str, error: Exception
) -> None:
    trainer = small_trainer()

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    setattr(trainer.replica, place, fail)
    calls: dict[str, Callable[[], Any]] = {
        "evaluate": trainer.evaluate,
        "predict": lambda: trainer.predict(np.zeros((2, *trainer.spec.input_shape))),
    }
    with pytest.raises(ConfigError, match=r"memory ran out while .*allocate.*Make the batch smaller"):
        calls.get(place, lambda: trainer.fit(1))()
