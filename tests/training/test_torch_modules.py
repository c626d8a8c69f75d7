"""A torch.nn.Module as the network of a trainer: PyTorch's own loop is the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="a module needs PyTorch: pip install 'ringlet[torch]'")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import ringlet  # noqa: E402
from ringlet import Dataset, Trainer  # noqa: E402
from ringlet.data.source import ArraySource  # noqa: E402
from ringlet.engines.torch import Torch  # noqa: E402
from ringlet.engines.torch.module_spec import describe_module  # noqa: E402
from ringlet.errors import ConfigError, ModelFileError, SpecError, UsageError  # noqa: E402
from ringlet.optim import OPTIMIZERS  # noqa: E402

CLASSES = 4
OPTIONS: dict[str, Any] = {"num_epochs": 2, "global_batch_size": 10, "seed": 3, "threads": 1}


def sample_data(count: int = 50, shape: tuple[int, ...] = (2, 5, 4), seed: int = 0) -> Dataset:
    """Images whose class can be seen: each class has its own mean."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    images = (rng.standard_normal((count, *shape)) + 0.5 * labels.reshape(-1, *[1] * len(shape))).astype("float32")
    return Dataset("toy", ArraySource(images, labels, CLASSES), test=ArraySource(images[:20], labels[:20], CLASSES))


class Plain(nn.Module):
    """No randomness and no statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.head = nn.Linear(60, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(functional.gelu(self.conv(x)).flatten(1))


class Odd(nn.Module):
    """Everything that modules of the wild have."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(2, momentum=None)  # its factor is one over the number of batches so far
        self.dropout = nn.Dropout(0.4)
        self.first = nn.Linear(40, 6, bias=False)
        self.second = nn.Linear(40, 6, bias=False)
        self.second.weight = self.first.weight  # tied
        self.turned = nn.Parameter(torch.randn(CLASSES, 6).t())  # not contiguous
        self.frozen = nn.Parameter(torch.randn(6), requires_grad=False)
        self.unused = nn.Parameter(torch.randn(3))
        self.register_buffer("table", torch.tensor([2**40 + 1, 7]))
        self.register_buffer("mean", torch.tensor(0.1), persistent=False)
        self.register_buffer("average", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x).flatten(1)
        hidden = self.first(self.dropout(x)) + self.second(x) + self.frozen + self.mean
        if self.training:
            self.average = 0.9 * self.average + 0.1 * hidden.detach().mean(0)  # another tensor, not a write
        return torch.tanh(hidden) @ self.turned


def odd(seed: int = 0) -> Odd:
    torch.manual_seed(seed)
    return Odd()


def tensors(module: nn.Module) -> dict[str, Any]:
    """Bytes of all tensors of a module, with those that its state dict leaves out."""
    named = (*module.named_parameters(), *module.named_buffers())
    return {name: tensor.detach().numpy().tobytes() for name, tensor in named}


# -- numbers -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            {"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.01},
            lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01),
        ),
        ({"optimizer": "adam", "learning_rate": 0.01}, lambda parameters: torch.optim.Adam(parameters, lr=0.01)),
    ],
    ids=["sgd", "adam"],
)
def test_twenty_steps_are_those_of_a_loop_of_pytorch(ours: dict[str, Any], theirs: Any) -> None:
    torch.manual_seed(1)
    module, twin = Plain(), Plain()
    twin.load_state_dict(module.state_dict())
    dataset = sample_data(100)
    trainer = Trainer(module, dataset, **OPTIONS | ours)
    batches = [batch for epoch in range(2) for batch in trainer.session._loop.train.epoch(epoch)]
    assert len(batches) == 20
    history = trainer.fit()
    optimizer, losses = theirs(twin.parameters()), []
    for batch in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(twin(torch.from_numpy(batch.inputs)), torch.from_numpy(batch.targets))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for (name, found), (_, expected) in zip(module.named_parameters(), twin.named_parameters(), strict=True):
        np.testing.assert_allclose(found.detach(), expected.detach(), rtol=2e-4, atol=2e-6, err_msg=name)
    assert history.epochs[-1]["loss"] == pytest.approx(np.mean(losses[10:]), rel=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        functional.cross_entropy,
        nn.CrossEntropyLoss(reduction="sum"),
        lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none"),
    ],
    ids=["mean", "sum", "by sample"],
)
def test_a_loss_of_the_program_weighs_unequal_shards_like_the_named_one(loss: Any) -> None:
    """Batches of 10 samples in 3 shards: 4, 3 and 3."""

    def train(**options: Any) -> tuple[Any, float]:
        torch.manual_seed(1)
        trainer = Trainer(Plain(), sample_data(), **OPTIONS | {"optimizer": "sgd", "learning_rate": 0.1} | options)
        history = trainer.fit()
        return trainer.replica.parameters.flat.copy(), history.epochs[-1]["loss"]

    expected, expected_loss = train()
    found, found_loss = train(loss=loss, shards=3)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert found_loss == pytest.approx(expected_loss, rel=1e-5)


def test_predictions_are_probabilities_of_the_logits() -> None:
    torch.manual_seed(2)
    module, dataset = Plain(), sample_data()
    trainer = Trainer(module, dataset, **OPTIONS)
    images = dataset.train.read(np.arange(7))[0]
    with torch.no_grad():
        expected = torch.softmax(module(torch.from_numpy(images)), 1)
    np.testing.assert_allclose(trainer.predict(images), expected, rtol=1e-5)
    assert any("softmax" in remark for remark in trainer.remarks)


def test_a_module_that_ends_in_softmax_gives_probabilities() -> None:
    torch.manual_seed(2)
    images = sample_data().train.read(np.arange(7))[0]
    module = nn.Sequential(Plain(), nn.Softmax(1))
    trainer = Trainer(module, sample_data(), **OPTIONS)
    np.testing.assert_allclose(trainer.predict(images), module(torch.from_numpy(images)).detach(), rtol=1e-5)
    said = Trainer(nn.Sequential(Plain(), nn.Softmax(1)), sample_data(), outputs="logits", **OPTIONS)
    assert not np.allclose(said.predict(images), trainer.predict(images))


def test_masks_are_learned_by_a_module_with_one_output() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    options = OPTIONS | {"input_shape": (3, 16, 16), "num_samples": 40, "optimizer": "adam", "learning_rate": 0.02}
    trainer = Trainer(module, "shapes", **options)
    before = trainer.evaluate("train")["loss"]
    trainer.fit(4)
    assert trainer.evaluate("train")["loss"] < 0.8 * before
    assert trainer.predict(trainer.dataset.train.read(np.arange(2))[0]).shape == (2, 1, 16, 16)


@pytest.mark.parametrize(
    ("loss", "judge"),
    [
        ("mse", functional.mse_loss),
        ("mae", functional.l1_loss),
        ("binary_cross_entropy", functional.binary_cross_entropy_with_logits),
    ],
)
def test_values_and_several_labels_have_the_gradients_of_pytorch(loss: str, judge: Any) -> None:
    torch.manual_seed(0)
    module = nn.Linear(6, 3)
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((5, 6)).astype("float32"), rng.random((5, 3)).round().astype("float32")
    activation = "sigmoid" if loss == "binary_cross_entropy" else "identity"
    spec = describe_module(module, inputs, lambda shape, known: activation)  # noqa: ARG005
    expected = torch.autograd.grad(judge(module(torch.from_numpy(inputs)), torch.from_numpy(targets)), module.weight)
    replica = Torch().build_module(spec, loss=loss, local_batch_size=5)
    output = replica.loss_and_gradients(inputs, targets)
    np.testing.assert_allclose(replica.gradients.views["weight"], expected[0], rtol=1e-5, atol=1e-7)
    assert output.loss_sum / 5 == pytest.approx(
        judge(module(torch.from_numpy(inputs)), torch.from_numpy(targets)).item()
    )


@pytest.mark.parametrize("named", [True, False], ids=["named loss", "function"])
def test_weights_of_samples_and_classes_have_the_gradients_of_pytorch(named: bool) -> None:
    torch.manual_seed(0)
    module = nn.Linear(6, CLASSES)
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((5, 6)).astype("float32"), rng.integers(0, CLASSES, 5)
    weights, table = rng.random(5).astype("float32"), rng.random(CLASSES).astype("float32") if named else None
    spec = describe_module(module, inputs, lambda shape, known: "softmax")  # noqa: ARG005
    judged = functional.cross_entropy(
        module(torch.from_numpy(inputs)),
        torch.from_numpy(targets),
        weight=None if table is None else torch.from_numpy(table),
        reduction="none",
    )
    total = (judged * torch.from_numpy(weights)).sum()
    expected = torch.autograd.grad(total, module.weight)[0]
    own = {"class_weights": table} if named else {"own_loss": nn.CrossEntropyLoss(reduction="none")}
    replica = Torch().build_module(spec, local_batch_size=5, **own)
    output = replica.loss_and_gradients(inputs, targets, weights=weights, scale=1)
    np.testing.assert_allclose(replica.gradients.views["weight"], expected, rtol=1e-5, atol=1e-7)
    assert output.loss_sum == pytest.approx(total.item())
    assert replica.evaluate(inputs, targets, weights).loss_sum == pytest.approx(total.item())


def test_weights_that_a_function_cannot_apply_are_an_error() -> None:
    images, labels = sample_data().train.read(np.arange(50))
    weighted = Dataset("weighted", ArraySource(images, labels, CLASSES, weights=np.ones(50, np.float32)))
    with pytest.raises(UsageError, match="loss 'cross_entropy' gives one value for all samples"):
        Trainer(Plain(), weighted, loss=functional.cross_entropy, **OPTIONS).fit()
    with pytest.raises(UsageError, match="class weights cannot be applied to loss 'cross_entropy'"):
        Trainer(Plain(), sample_data(), loss=functional.cross_entropy, class_weights=[1, 2, 3, 4], **OPTIONS)


# -- modules of the wild -----------------------------------------------------------------------------------------------
def test_an_odd_module_trains_and_what_is_not_to_change_stays() -> None:
    module = odd()
    before, frozen, table = tensors(module), module.frozen.clone(), module.table.clone()
    generator = torch.get_rng_state()
    trainer = Trainer(module, sample_data(), optimizer="adam", decay=0.1, shards=3, **OPTIONS)
    assert tensors(module) == before, "looking at a module changes nothing"
    trainer.fit()
    after = tensors(module)
    assert torch.equal(module.frozen, frozen)
    assert torch.equal(module.table, table)
    assert module.norm.num_batches_tracked.item() == trainer.progress.num_steps == 10
    changed = {name for name in after if after[name] != before[name]}
    assert {"first.weight", "turned", "norm.running_mean", "norm.running_var", "average"} <= changed
    assert changed.isdisjoint({"frozen", "table", "mean"})
    assert module.second.weight is module.first.weight
    assert torch.equal(torch.get_rng_state(), generator), "the program's random numbers are its own"


def test_a_trained_module_is_the_programs_own_again() -> None:
    """Its gradients go where PyTorch puts them, its modes are those it had."""
    module = odd()
    module.dropout.eval()
    trainer = Trainer(module, sample_data(), **OPTIONS)
    trainer.fit()
    assert module.training
    assert not module.dropout.training
    module(torch.randn(4, 2, 5, 4)).sum().backward()
    assert module.turned.grad is not None


def test_parts_in_inference_mode_stay_in_it() -> None:
    module = odd()
    module.norm.eval()
    Trainer(module, sample_data(), **OPTIONS).fit()
    assert module.norm.num_batches_tracked.item() == 0


def test_the_same_seed_gives_the_same_bits() -> None:
    """Dropout draws by seed, step and shard; the statistics of a shard begin with those of the step."""

    def train(**options: Any) -> dict[str, Any]:
        module = odd()
        Trainer(module, sample_data(), shards=2, **OPTIONS | options).fit()
        return tensors(module)

    assert train() == train()
    assert train(seed=4) != train()


def test_a_run_resumes_to_the_bit(tmp_path: Path) -> None:
    options = OPTIONS | {"optimizer": "adam", "shards": 2, "checkpoint_every": "3 steps", "keep": 0}
    straight = odd()
    Trainer(straight, sample_data(), run_dir=str(tmp_path / "run"), **options).fit(resume="auto")
    resumed = odd(seed=9)  # other weights, another table: those of the checkpoint count
    resumed.frozen.data.fill_(3.0)
    resumed.table.fill_(0)
    trainer = Trainer(resumed, sample_data(), run_dir=str(tmp_path / "run"), **options)
    trainer.session.say = lambda _: None
    trainer.fit(resume="6")
    assert tensors(resumed) == tensors(straight)
    assert trainer.progress.num_steps == 10


def test_a_checkpoint_of_another_module_is_refused(tmp_path: Path) -> None:
    options = OPTIONS | {"run_dir": str(tmp_path / "run"), "checkpoint_every": "5 steps"}
    Trainer(Plain(), sample_data(), **options).fit(resume="auto")
    other = Plain()
    other.head = nn.Sequential(nn.Linear(60, 8), nn.Linear(8, CLASSES))
    with pytest.raises(ringlet.RingletError, match="not this run's 'Plain'"):
        Trainer(other, sample_data(), **options).fit(resume="auto")


@pytest.mark.parametrize("strategy", ["average:2", "bmuf:2", "async", "softsync:1"])
def test_all_strategies_take_a_module(strategy: str) -> None:
    module = odd()
    before = tensors(module)
    Trainer(module, sample_data(), strategy=strategy, **OPTIONS).fit()
    assert tensors(module)["turned"] != before["turned"]
    assert module.norm.num_batches_tracked.item() == 10


def test_mixed_precision_keeps_weights_in_float32() -> None:
    torch.manual_seed(0)
    module = Plain()
    trainer = Trainer(module, sample_data(), dtype="bfloat16", optimizer="adam", **OPTIONS)
    before = trainer.evaluate("train")["loss"]
    trainer.fit()
    assert module.head.weight.dtype == torch.float32
    assert trainer.evaluate("train")["loss"] < before


# -- files -------------------------------------------------------------------------------------------------------------
def test_a_saved_file_loads_into_the_module_without_ringlet(tmp_path: Path) -> None:
    load_file = pytest.importorskip("safetensors.torch").load_file
    module = odd()
    trainer = Trainer(module, sample_data(), **OPTIONS)
    trainer.fit(1)
    trainer.save(tmp_path / "net.safetensors")
    other = odd(seed=5)
    other.load_state_dict(load_file(tmp_path / "net.safetensors"))
    images = sample_data().train.read(np.arange(6))[0]
    with torch.no_grad():
        expected = torch.softmax(other.eval()(torch.from_numpy(images)), 1)
    np.testing.assert_allclose(trainer.predict(images), expected, rtol=1e-5)
    with pytest.raises(ModelFileError, match="load_state_dict"):
        ringlet.load_model(tmp_path / "net.safetensors")
    with pytest.raises(ModelFileError, match=r"\.safetensors"):
        trainer.save(tmp_path / "net.pt")


# -- what is refused ---------------------------------------------------------------------------------------------------
class Branching(nn.Module):
    """Gives several things, as detectors and networks with auxiliary heads do."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"out": x}


class ChangesLater(nn.Module):
    """Writes a buffer only after a while."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.passes = nn.Linear(40, CLASSES), 0
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self.passes += self.training
        if self.passes == 4:
            self.scale.mul_(0.5)
        return self.head(x.flatten(1)) * self.scale


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(CLASSES)), "is lazy.*Pass a batch"),
        (Branching, "gives a dict, expected one tensor"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(7, CLASSES)), r"cannot take the data.*\(2, 2, 5, 4\)"),
        (lambda: Plain().double(), "float64"),
        (lambda: frozen(Plain()), "nothing to train"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(40, 2)), r"gives outputs \(2,\).*needs \(4,\)"),
    ],
    ids=["lazy", "dict", "shape", "double", "frozen", "classes"],
)
def test_a_module_that_cannot_learn_the_data_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        Trainer(make(), sample_data(), **OPTIONS)


def test_a_buffer_that_changes_later_is_an_error() -> None:
    with pytest.raises(SpecError, match="'scale', which its first pass left alone"):
        Trainer(ChangesLater(), sample_data(), **OPTIONS).fit()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"engine": "native"}, "engine = native, but 'Plain' is a module of torch"),
        ({"engine": "keras"}, "leave engine out"),
        ({"model.weights": "model.safetensors"}, "brings its own weights"),
        ({"outputs": "scores"}, "expected 'logits' or 'probabilities'"),
        ({"loss": nn.Linear(1, 1)}, "the loss has parameters to learn"),
    ],
)
def test_options_for_networks_of_ringlet_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Trainer(Plain(), sample_data(), **OPTIONS | options)


def test_a_configuration_leaves_the_engine_to_the_module_unless_it_names_one() -> None:
    assert Trainer(Plain(), sample_data(), config=ringlet.RunConfig(seed=4)).config.engine.name == "torch"
    with pytest.raises(ConfigError, match="engine = native"):
        Trainer(Plain(), sample_data(), config=ringlet.RunConfig(engine="native"))


def test_only_modules_are_told_what_their_outputs_are() -> None:
    with pytest.raises(TypeError, match=r"torch\.nn\.Module or a keras\.Model"):
        Trainer("simplemlp", "digits", outputs="logits")


def test_an_optimizer_of_pytorch_is_refused() -> None:
    module = Plain()
    with pytest.raises(TypeError, match="ringlet Optimizer"):
        Trainer(module, sample_data(), optimizer=torch.optim.SGD(module.parameters(), lr=0.1))


def test_a_loss_that_gives_neither_a_mean_nor_values_of_samples_is_an_error() -> None:
    with pytest.raises(UsageError, match="expected one value, their mean, or one for each sample"):
        Trainer(Plain(), sample_data(), loss=lambda outputs, targets: outputs[0], **OPTIONS).fit()  # noqa: ARG005


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_no_optimizer_moves_what_is_frozen(name: str) -> None:
    module = odd()
    frozen_before = module.frozen.clone()
    Trainer(module, sample_data(20), optimizer=name, **OPTIONS | {"num_epochs": 1}).fit()
    assert torch.equal(module.frozen, frozen_before)
