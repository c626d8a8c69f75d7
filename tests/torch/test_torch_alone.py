"""``ringlet.torch`` in one process: the names, what costs nothing there, and the parts that need no ranks."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ringlet.torch as hvd
from ringlet.comm.environments import VARIABLES
from ringlet.errors import UsageError
from ringlet.torch import buckets, objects, tensors

HOROVOD = """
init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous mpi_built gloo_built
nccl_built ccl_built ddl_built cuda_built rocm_built mpi_enabled gloo_enabled mpi_threads_supported Average Sum Adasum
Min Max Product allreduce allreduce_ allreduce_async allreduce_async_ grouped_allreduce grouped_allreduce_
grouped_allreduce_async grouped_allreduce_async_ allgather allgather_async grouped_allgather grouped_allgather_async
broadcast broadcast_ broadcast_async broadcast_async_ alltoall alltoall_async reducescatter reducescatter_async
grouped_reducescatter grouped_reducescatter_async sparse_allreduce_async poll synchronize barrier join broadcast_object
allgather_object broadcast_parameters broadcast_optimizer_state DistributedOptimizer SyncBatchNorm ProcessSet
add_process_set remove_process_set global_process_set Compression start_timeline stop_timeline elastic run
"""


@pytest.fixture
def session() -> Iterator[None]:
    """Initialised, with this process alone."""
    hvd.init()
    yield
    hvd.shutdown()


def test_every_name_of_horovod_is_there() -> None:
    names = HOROVOD.split()
    assert [name for name in names if not hasattr(hvd, name)] == []
    assert set(names) <= set(hvd.__all__)
    for name in ("State", "ObjectState", "TorchState", "ElasticSampler", "run"):
        assert hasattr(hvd.elastic, name)


def test_questions_before_init_raise() -> None:
    assert not hvd.is_initialized()
    questions = (
        hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size, hvd.is_homogeneous,
        hvd.mpi_enabled, hvd.gloo_enabled, hvd.mpi_threads_supported, lambda: hvd.allreduce(torch.ones(2)),
    )  # fmt: skip
    for question in questions:
        with pytest.raises(ValueError, match="init"):
            question()
    assert not hvd.is_initialized()


def test_only_torch_is_imported() -> None:
    program = """
import sys, json
import ringlet
before = "torch" in sys.modules
import ringlet.torch
print(json.dumps([before, [name for name in ("keras", "tensorflow", "jax", "mpi4py") if name in sys.modules]]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == [False, []]


@pytest.mark.usefixtures("session")
def test_one_process_is_a_world_of_its_own() -> None:
    tensor = torch.arange(6.0).reshape(3, 2)
    assert (hvd.rank(), hvd.size(), hvd.local_size(), hvd.cross_size()) == (0, 1, 1, 1)
    for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        result = hvd.allreduce(tensor, op=op)
        assert torch.equal(result, tensor)
        assert result.data_ptr() != tensor.data_ptr()
    assert torch.equal(hvd.allgather(tensor), tensor)
    assert torch.equal(hvd.broadcast(tensor, 0), tensor)
    assert torch.equal(hvd.alltoall(tensor), tensor)
    assert torch.equal(hvd.reducescatter(tensor), tensor)
    assert hvd.join() == 0
    assert hvd.allgather_object({"a": 1}) == [{"a": 1}]
    hvd.barrier()


@pytest.mark.usefixtures("session")
def test_alone_the_optimizer_follows_no_backward_pass() -> None:
    model = nn.Linear(3, 2)
    twin = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    plain = torch.optim.SGD(twin.parameters(), 0.1)
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    for _ in range(3):
        for net, by in ((model, optimizer), (twin, plain)):
            by.zero_grad()
            net(torch.ones(2, 3)).sum().backward()
            by.step()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    plain.step()
    assert torch.equal(model.weight, twin.weight)
    adasum = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), op=hvd.Adasum)
    adasum.step()
    plain.step()
    assert torch.equal(model.weight, twin.weight)


@pytest.mark.usefixtures("session")
def test_alone_batch_normalisation_is_the_plain_one() -> None:
    layer, plain = hvd.SyncBatchNorm(3, momentum=None), nn.BatchNorm1d(3, momentum=None)
    for _ in range(3):
        x = torch.randn(4, 3)
        assert torch.allclose(layer(x), plain(x))
    assert torch.allclose(layer.running_var, plain.running_var)
    layer.eval()
    plain.eval()
    assert torch.allclose(layer(x), plain(x))


def work(factor: float, *, shift: float) -> list[float]:
    """What ranks of :func:`hvd.run` do."""
    import ringlet.torch as hvd

    hvd.init()
    return hvd.allreduce(torch.full((2,), factor * hvd.rank() + shift), op=hvd.Sum).tolist()


def test_run_calls_a_function_on_new_ranks() -> None:
    assert hvd.run(work, args=(2.0,), kwargs={"shift": 1.0}, num_proc=2, hosts="localhost:2") == [[4.0, 4.0]] * 2


# -- memory -----------------------------------------------------------------------------------------------------------
@given(st.permutations(range(4)), st.sampled_from(list(tensors.NUMPY_DTYPES)), st.booleans())
def test_arrays_have_the_values_of_tensors_in_any_layout(order: list[int], dtype: torch.dtype, sliced: bool) -> None:
    inverse = [order.index(place) for place in range(4)]
    values = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    tensor = values.permute(order).contiguous().permute(inverse).to(dtype)
    tensor = tensor[:, :, ::2] if sliced else tensor
    array = tensors.to_array(tensor)
    assert array.dtype == tensors.numpy_dtype(dtype)
    assert array.shape == tuple(tensor.shape)
    back = tensors.from_array(array)
    assert back.dtype is dtype
    assert torch.equal(back, tensor)
    assert tensors.is_dense(tensor) != sliced
    shared = tensors.shares_memory(tensor)
    assert shared == tensor.is_contiguous()
    if shared and tensor.numel():
        array.reshape(-1)[0] = 1
        assert tensor.reshape(-1)[0] == 1
    elif not sliced:
        memory = np.zeros(tensor.numel(), array.dtype)
        slot = tensors.slot(memory, tensor).copy_(tensor)
        assert slot.stride() == tensor.stride()
        assert torch.equal(slot, tensor)


def test_conjugated_views_and_strange_dtypes() -> None:
    tensor = torch.tensor([1 + 2j]).conj()
    assert tensors.to_array(tensor).tolist() == [1 - 2j]
    with pytest.raises(ValueError, match="float8_e4m3fn cannot travel"):
        tensors.to_array(torch.ones(2, dtype=torch.float8_e4m3fn))


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=5)
    | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3)
    | st.tuples(inner, inner)
    | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers()), inner, max_size=3)
    | st.frozensets(st.integers(), max_size=3)
    | st.sets(st.text(max_size=2), max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(JSON_LIKE)
def test_objects_come_back_as_they_were(value: object) -> None:
    outline, found = objects.split({"value": value, "tensor": torch.ones(2)})
    restored = objects.join(json.loads(json.dumps(outline)), found)
    assert restored["value"] == value
    assert type(restored["value"]) is type(value)
    assert [tuple(blank.shape) for blank in objects.blank_tensors(outline)] == [(2,)]


@pytest.mark.parametrize("value", [object(), lambda: 0, np.array([None]), torch.ones(2).to_sparse(), nn.Linear(1, 1)])
def test_objects_that_cannot_travel_are_refused(value: object) -> None:
    with pytest.raises(UsageError, match=r"the object\['key'\] is (of type|an array of object)"):
        objects.split({"key": value})


@pytest.mark.parametrize("outline", [{}, {"kind": "?"}, {"kind": "tensor", "place": 3}, {"kind": "dict", "items": [1]}])
def test_outlines_that_are_none_are_refused(outline: object) -> None:
    with pytest.raises(ValueError, match="no outline"):
        objects.join(outline, [])


# -- buckets ----------------------------------------------------------------------------------------------------------
@given(st.lists(st.integers(0, 50), max_size=20), st.integers(1, 200))
def test_buckets_hold_every_parameter_once_and_in_order(sizes: list[int], bucket_bytes: int) -> None:
    parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
    places = list(range(len(sizes)))[::-1]
    cut = buckets.cut_by_bytes(places, parameters, bucket_bytes)
    assert [place for bucket in cut for place in bucket] == places
    for bucket in cut:
        assert sum(4 * sizes[place] for place in bucket[:-1]) < bucket_bytes


@given(st.integers(1, 30), st.integers(1, 30))
def test_groups_by_number_are_about_equal(num_parameters: int, num_groups: int) -> None:
    cut = buckets.cut_by_count(list(range(num_parameters)), num_groups)
    assert [place for group in cut for place in group] == list(range(num_parameters))
    assert len(cut) == min(num_parameters, num_groups)
    lengths = {len(group) for group in cut}
    assert max(lengths) - min(lengths) <= 1


def test_gradients_of_a_compressor_are_dense() -> None:
    layer = nn.Embedding(4, 2, sparse=True)
    layer(torch.tensor([1])).sum().backward()
    gradient: Tensor = buckets._dense(layer.weight)
    assert gradient.layout is torch.strided
    assert gradient[1].tolist() == [1.0, 1.0]


# -- a life after death -----------------------------------------------------------------------------------------------
SCRIPT = """
import os, signal, sys
import torch
import ringlet.torch as hvd

hvd.init()
first = os.environ.get("RINGLET_ATTEMPT", "0") == "0"

def train(name, dies):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), 0.1), model.named_parameters())

    @hvd.elastic.run
    def steps(state):
        while state.step < 12:
            optimizer.zero_grad()
            model(torch.full((2, 3), float(state.step + hvd.rank()))).square().mean().backward()
            optimizer.step()
            state.step += 1
            if state.step == 7 and hvd.rank() == 1 and dies:
                os.kill(os.getpid(), signal.SIGKILL)
            state.commit()

    steps(hvd.elastic.TorchState(model, optimizer, directory=os.path.join(sys.argv[1], name), step=0))
    if hvd.rank() == 0:
        print(name, model.weight.detach().numpy().tobytes().hex(), flush=True)

if first:
    train("undisturbed", dies=False)
train("killed", dies=first)
"""


def test_a_rank_that_is_killed_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    words = ["run", "-n", 2, "--launcher", "local", "--restarts", 1, tmp_path / "script.py", tmp_path]
    command = [sys.executable, "-m", "ringlet", *map(str, words)]
    environment = {"PYTHONPATH": str(Path(hvd.__file__).parents[2]), "RINGLET_RESTART_DELAY": "0"}
    done = _run(command, environment)
    assert done.returncode == 0, done.stderr
    assert "restart 1 of 1" in done.stderr
    results = dict(line.split() for line in done.stdout.splitlines())
    assert list(results) == ["undisturbed", "killed"]
    assert results["undisturbed"] == results["killed"] != ""


def _run(command: list[str], more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES} | more
    environment |= {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
