"""RunConfig: types, ranges, contradictions, TOML round trip, precedence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet import RunConfig
from ringlet.config import Interval, gather
from ringlet.config.names import WITHOUT_EFFECT, flat_names, locate, paths
from ringlet.errors import ConfigError
from ringlet.optim import LARS, SCHEDULES

PYDTNN_OPTIONS = [
    "model",
    "batch_size",
    "global_batch_size",
    "dtype",
    "num_epochs",
    "steps_per_epoch",
    "evaluate",
    "evaluate_only",
    "weights_and_bias_filename",
    "history_file",
    "shared_storage",
    "enable_fused_bn_relu",
    "enable_fused_conv_relu",
    "enable_fused_conv_bn",
    "enable_fused_conv_bn_relu",
    "tensor_format",
    "dataset",
    "use_synthetic_data",
    "dataset_train_path",
    "dataset_test_path",
    "test_as_validation",
    "flip_images",
    "flip_images_prob",
    "crop_images",
    "crop_images_size",
    "crop_images_prob",
    "validation_split",
    "optimizer",
    "learning_rate",
    "learning_rate_scaling",
    "momentum",
    "decay",
    "nesterov",
    "beta1",
    "beta2",
    "epsilon",
    "rho",
    "decay_rate",
    "loss_func",
    "metrics",
    "lr_schedulers",
    "warm_up_epochs",
    "early_stopping_metric",
    "early_stopping_patience",
    "reduce_lr_on_plateau_metric",
    "reduce_lr_on_plateau_factor",
    "reduce_lr_on_plateau_patience",
    "reduce_lr_on_plateau_min_lr",
    "reduce_lr_every_nepochs_factor",
    "reduce_lr_every_nepochs_nepochs",
    "reduce_lr_every_nepochs_min_lr",
    "stop_at_loss_metric",
    "stop_at_loss_threshold",
    "model_checkpoint_metric",
    "model_checkpoint_save_freq",
    "parallel",
    "blocking_mpi",
    "non_blocking_mpi",
    "tracing",
    "tracer_output",
    "profile",
    "enable_gpu",
]


@pytest.mark.parametrize("name", PYDTNN_OPTIONS)
def test_every_option_of_pydtnn_is_known(name):
    assert name in WITHOUT_EFFECT or locate(name) is not None


def test_every_option_of_the_schedules_has_a_flat_name():
    for rule in SCHEDULES.entries():
        for name in rule.model_fields:
            assert locate(f"{rule.name}_{name}").path == ("schedule", rule.name, name)


def test_every_flat_name_leads_to_an_option():
    known = paths()
    for name in flat_names():
        alias = None if name in WITHOUT_EFFECT else locate(name)
        if alias is not None and len(alias.path) > 1 and name != "decay":
            assert alias.path in known, name


def test_every_option_has_a_description():
    assert all(field is None or field.description for field in paths().values())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 0}, "batch_size: 0 is out of range, expected at least 1"),
        ({"learning_rate": -1.0}, "learning_rate: -1.0 is out of range, expected greater than 0"),
        ({"learning_rate": float("nan")}, "learning_rate: nan is not a finite number"),
        ({"learning_rate": float("inf")}, "learning_rate: inf is not a finite number"),
        ({"validation_split": 1.0}, "validation_split: 1.0 is out of range, expected less than 1"),
        (
            {"dtype": "float23"},
            "dtype: 'float23' is not known, expected 'float32', 'float64' or 'bfloat16'. Did you mean 'float32'?",
        ),
        ({"seed": "7"}, "seed: expected a whole number, received '7'"),
        ({"seed": True}, "seed: expected a whole number, received true"),
        ({"evaluate": "yes"}, "evaluate: expected true or false, received 'yes'"),
        ({"learnin_rate": 0.1}, "unknown option 'learnin_rate'. Did you mean 'learning_rate'?"),
        ({"input_shape": (1, 2)}, "input_shape: 1,2: expected channels,height,width"),
        ({"blocking_mpi": True, "non_blocking_mpi": True}, "contradict each other"),
        ({"batch_size": 32, "local_batch_size": 64}, "batch_size = 32 and local_batch_size = 64 contradict"),
        ({"local_batch_size": 0}, "local_batch_size: 0 is out of range, expected at least 1"),
        ({"shards": 4, "accumulate": 2}, "exclude each other"),
        ({"shards": 4, "compression": "bf16"}, "shards promise"),
        ({"blocking_mpi": True, "overlap": "on"}, "blocking_mpi = true and overlap = on contradict each other"),
        ({"non_blocking_mpi": True, "overlap": "off"}, "non_blocking_mpi = true and overlap = off contradict"),
        ({"rho": 0.9, "decay_rate": 0.8}, "rho = 0.9 and decay_rate = 0.8 contradict each other"),
        ({"optimizer": "sgd", "nesterov": True, "momentum": 0.0}, "nesterov: needs momentum > 0"),
        ({"test_as_validation": True, "validation_split": 0.2}, "exclude each other"),
        ({"clip_value": 1.0, "clip_norm": 1.0}, "exclude each other"),
    ],
)
def test_a_wrong_value_is_one_clear_line(values, message):
    with pytest.raises(ConfigError) as caught:
        RunConfig(**values)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert "pydantic" not in str(caught.value).lower()


@pytest.mark.parametrize(
    ("values", "num_workers", "num_shards", "global_batch_size"),
    [
        ({}, 1, 1, 64),
        ({}, 3, 3, 192),
        ({"batch_size": 10}, 4, 4, 40),
        ({"local_batch_size": 10, "accumulate": 3}, 4, 12, 120),
        ({"global_batch_size": 100}, 3, 3, 100),
        ({"global_batch_size": 100, "local_batch_size": 50}, 2, 2, 100),
        ({"shards": 8, "local_batch_size": 16}, 3, 8, 128),
        ({"shards": 8, "global_batch_size": 100}, 1, 8, 100),
    ],
)
def test_batch_sizes_follow_from_workers_passes_and_shards(values, num_workers, num_shards, global_batch_size):
    config = RunConfig(**values)
    assert config.num_shards(num_workers) == num_shards
    assert config.samples_per_step(num_workers) == global_batch_size


def test_batch_sizes_that_contradict_each_other_or_too_few_shards_are_refused():
    with pytest.raises(ConfigError, match="local_batch_size = 32 and global_batch_size = 100 contradict"):
        RunConfig(local_batch_size=32, global_batch_size=100).samples_per_step(3)
    with pytest.raises(ConfigError, match="shards = 2, but 3 workers"):
        RunConfig(shards=2).num_shards(3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100 steps", (100, "steps")),
        ("7", (7, "steps")),
        ("2epochs", (2, "epochs")),
        ("epoch", (1, "epochs")),
        ("auto", (1, "auto")),
        ("Never", (0, "never")),
    ],
)
def test_intervals_of_checkpoints(text, expected):
    interval = Interval.parse(text)
    assert (interval.count, interval.unit) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"checkpoint_every": "often"}, "checkpoint_every: expected such as .* received 'often'"),
        ({"checkpoint_every": "-3 steps"}, "checkpoint_every: .* received '-3 steps'"),
        ({"resume": "yesterday"}, "resume: expected auto, .* received 'yesterday'"),
    ],
)
def test_unreadable_intervals_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig(**values)


def test_older_names_of_options_set_their_new_ones():
    assert RunConfig(batch_size=7).training.local_batch_size == 7
    assert RunConfig(blocking_mpi=True).strategy.overlap == "off"
    assert RunConfig(non_blocking_mpi=True).strategy.overlap == "on"


def test_every_problem_gets_its_own_line():
    with pytest.raises(ConfigError) as caught:
        RunConfig(batch_size=0, seed=-1, colour="red")
    assert len(str(caught.value).splitlines()) == 3


def configurations() -> st.SearchStrategy[dict[str, object]]:
    text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
    return st.fixed_dictionaries(
        {},
        optional={
            "model": text,
            "dataset_path": text,
            "seed": st.integers(0, 2**63 - 1),
            "learning_rate": st.floats(1e-300, 1e300),
            "global_batch_size": st.integers(1, 1000),
            "validation_split": st.floats(0, 0.99),
            "evaluate": st.booleans(),
            "metrics": st.lists(st.sampled_from(["accuracy", "mse", "Top5"]), max_size=3).map(tuple),
            "lr_schedulers": st.sampled_from([(), ("warm_up",), ("warm_up", "cosine")]),
            "input_shape": st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
            "model_options": st.dictionaries(
                st.from_regex(r"[a-z]_[a-z0-9_]{1,9}", fullmatch=True),
                st.integers(-5, 5) | st.booleans() | text,
                max_size=3,
            ),
        },
    )


@given(configurations())
@settings(deadline=None)
def test_toml_out_and_in_gives_an_equal_configuration(tmp_path_factory, values):
    config = RunConfig(**values)
    path = tmp_path_factory.mktemp("toml") / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert gather(path).build().to_dict() == config.to_dict()


def test_test_as_validation_survives_the_round_trip(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(RunConfig(test_as_validation=True).to_toml())
    assert gather(path).build().dataset.validation_split == 0


def test_options_win_over_environment_over_file_over_default(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("seed = 1\nbatch-size = 8\nnum_epochs = 3\n")
    config = gather(path, {"RINGLET_SEED": "2", "RINGLET_BATCH_SIZE": "16"}, {"seed": "3"}).build()
    assert (
        config.training.seed,
        config.training.local_batch_size,
        config.training.num_epochs,
        config.training.dtype,
    ) == (3, 16, 3, "float32")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate = 1e999", "learning_rate: inf is not a finite number"),
        ("seed = '1'", "seed: expected a whole number"),
        ("[optimiser]\nname = 1", "Did you mean 'optimizer'?"),
        ("seed = ", "is not valid TOML"),
        ("a = " + "[" * 20_000, "is not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(tmp_path, text, message):
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"run\.toml") as caught:
        gather(path).build()
    assert message in str(caught.value)


def test_a_missing_file_is_refused():
    with pytest.raises(ConfigError, match=r"'nothing.toml' does not exist"):
        gather(Path("nothing.toml"))


def test_a_bad_variable_is_named():
    with pytest.raises(ConfigError, match="RINGLET_SEED: expected a whole number, received 'x'"):
        gather(None, {"RINGLET_SEED": "x"})


def test_a_mistyped_variable_is_remarked():
    settings = gather(None, {"RINGLET_BATCHSIZE": "3", "RINGLET_TEST_DATA": "/data"})
    assert settings.remarks == ["environment variable RINGLET_BATCHSIZE is no option; RINGLET_BATCH_SIZE is"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("learning_rate", "1e-3", 1e-3),
        ("metrics", "accuracy, mse", ("accuracy", "mse")),
        ("input_shape", "3,32,32", (3, 32, 32)),
        (
            "model_options",
            "levels=5,rate=.5,form=cifar,bias=true",
            {"levels": 5, "rate": 0.5, "form": "cifar", "bias": True},
        ),
        ("evaluate", "Yes", True),
        ("step_milestones", "3,4.5", (3.0, 4.5)),
    ],
)
def test_text_becomes_the_type_of_its_option(name, text, value):
    assert gather(options={name: text}).values[name] == value


def test_options_without_effect_are_said():
    assert RunConfig(enable_gpu=True).notes() == ["enable_gpu: no effect: give engine = torch, which takes GPUs"]


def test_what_an_optimizer_has_can_be_set_under_its_path():
    by_path = gather(options={"optimizer": "lars", "optimizer.trust": "0.002"}).build()
    assert by_path.optimizer == LARS(trust=0.002)
    assert RunConfig(optimizer={"name": "lars", "trust": 0.002}).optimizer == by_path.optimizer
    assert RunConfig(optimizer=LARS(trust=0.002)).to_dict() == by_path.to_dict()
    assert gather(None, {"RINGLET_OPTIMIZER": "lars", "RINGLET_OPTIMIZER__TRUST": "0.002"}).build() == by_path


def test_an_option_of_another_component_is_refused_under_its_path_and_remarked_under_a_flat_name():
    with pytest.raises(
        ConfigError, match=r"optimizer\.trust: optimizer 'adam' has no option 'trust'; optimizer = lars"
    ):
        RunConfig(**{"optimizer.trust": 0.1})
    assert RunConfig(momentum=0.5).notes() == ["momentum: no effect, optimizer 'adam' has no such option"]
    assert RunConfig(cosine_min_lr=0.1).notes() == ["cosine_min_lr: no effect without schedule = cosine"]


def test_another_choice_takes_back_what_a_file_has_set_for_the_first(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[optimizer]\nname = "lars"\ntrust = 0.5\nlearning_rate = 3.0\n')
    config = gather(path, {}, {"optimizer": "adam"}).build()
    assert config.optimizer.learning_rate == 0.001
    assert config.notes() == ["optimizer = adam: what was set for 'lars' does not apply"]
    assert gather(path, {}, {"optimizer": "lars"}).build().optimizer.trust == 0.5


def test_a_file_of_version_0_1_gives_the_same_run(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(FLAT_FILE)
    config = gather(path).build()
    assert config.notes() == []
    assert config.changed() == {
        "model.name": "unet",
        "model.levels": 3,
        "dataset.name": "shapes",
        "dataset.image_size": [64, 64],
        "augmentation.flip.probability": 0.25,
        "optimizer.name": "sgd",
        "optimizer.learning_rate": 0.05,
        "optimizer.momentum": 0.9,
        "optimizer.weight_decay": 0.001,
        "optimizer.decoupled": True,
        "schedule.warm_up.epochs": 2.0,
        "schedule.early_stopping.patience": 10,
        "strategy.name": "average",
        "strategy.every": 10,
        "trackers.tensorboard.folder": "logs",
    }


FLAT_FILE = """\
model = "unet"
model_options = { levels = 3 }
dataset = "shapes"
use_synthetic_data = false
image_size = [64, 64]
test_as_validation = false
flip_images = true
flip_images_prob = 0.25
crop_images = false
crop_images_size = 16
crop_images_prob = 0.5
num_epochs = 50
steps_per_epoch = 0
optimizer = "sgd"
learning_rate = 0.05
learning_rate_scaling = false
momentum = 0.9
nesterov = false
decay = 0.001
lr_schedulers = ["warm_up", "early_stopping"]
warm_up_epochs = 2.0
cosine_min_lr = 0.0
early_stopping_patience = 10
engine = "native"
device = "auto"
exact = false
strategy = "average:10"
accumulate = 1
partition = "shuffled"
overlap = "auto"
compression = "none"
checkpoint_every = "auto"
keep = 2
log = ["tensorboard:logs"]
blocking_mpi = false
tensor_format = "AUTO"
enable_gpu = false
"""


@pytest.mark.parametrize(
    ("before", "now", "differences"),
    [
        ({}, {"num_epochs": 9, "engine": "torch", "overlap": "off", "threads": 2, "log": "tensorboard"}, {}),
        ({"learning_rate": 0.1}, {}, {"optimizer.learning_rate": (0.1, 0.001)}),
        ({}, {"optimizer": "lars", "learning_rate": 0.001}, None),
        ({"schedule": "warm_up"}, {}, {"schedule.warm_up.epochs": (5.0, None)}),
        ({}, {"strategy": "average:2"}, None),
    ],
)
def test_what_a_resumed_run_may_change_follows_from_the_options(before, now, differences):
    found = RunConfig(**now).differences(RunConfig(**before))
    assert found == differences if differences is not None else any(path.endswith(".name") for path in found)


def test_replace_changes_and_unsets():
    config = RunConfig(local_batch_size=8, optimizer="sgd", momentum=0.9)
    assert config.replace(global_batch_size=16, local_batch_size=None).training.local_batch_size is None
    assert config.replace(seed=3).optimizer.momentum == 0.9
    assert config.replace(optimizer="adam").optimizer.name == "adam"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "unet", "model.levels": "99"}, "--model.levels: 99 is out of range, expected at most 16"),
        ({"model": "resnet50", "model.version": "v2"}, "--model.version: 'v2' is not known, expected 'v1' or 'v1.5'"),
        ({"model": "simplecnn", "model.width": "4"}, "--model.width: unknown option of model 'simplecnn' 'width'"),
        ({"model": "unet", "model_options": "width=0"}, "--model-options: 0 is out of range, expected at least 1"),
    ],
)
def test_options_of_a_network_are_checked_with_their_place(options, message):
    with pytest.raises(ConfigError) as caught:
        gather(options=options).build().check_network()
    assert message in str(caught.value)


def test_options_of_one_name_may_have_other_types():
    config = gather(options={"model": "mobilenetv1", "model.width": "0.5"}).build()
    config.check_network()
    assert config.model.options == {"width": 0.5}
    gather(options={"model": "unet", "model.width": "4"}).build().check_network()
    gather(options={"model": "vgg16", "model.hidden": "64,32"}).build().check_network()
