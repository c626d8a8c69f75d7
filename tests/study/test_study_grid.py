"""Which runs a study has, in which order, and how options become a design."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_common import cell

from ringlet.errors import ConfigError, UnknownNameError
from ringlet.study.design import StudyDesign, prepare
from ringlet.study.grid import build_cells, run_order
from ringlet.study.options import StudyOptions, read_options

names = st.lists(st.sampled_from(["a", "b:1", "b_1", "c@d/e", "c@d_e"]), min_size=1, max_size=4)
counts = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@settings(deadline=None)
@given(names, names, names, counts, counts, st.sampled_from([(True,), (False,), (True, False)]))
def test_the_grid_is_the_product_of_its_dimensions_without_repetition(
    models, engines, strategies, batches, workers, distributions
) -> None:
    cells = build_cells([(model, batches) for model in models], engines, strategies, workers, distributions)
    alone = 1 in workers
    per_group = len(set(workers) - {1}) * len(distributions) + alone
    assert len(cells) == len(set(models)) * len(set(engines)) * len(set(strategies)) * len(set(batches)) * per_group
    assert all(one.distribution for one in cells if one.workers == 1)
    assert len({one.name for one in cells}) == len(set(cells)) == len(cells)
    assert all("/" not in one.name and ":" not in one.name for one in cells)


@given(st.integers(1, 12), st.integers(1, 6))
def test_every_round_has_every_cell_once_and_rounds_begin_elsewhere(num_cells: int, repeats: int) -> None:
    cells = [cell(workers) for workers in range(1, num_cells + 1)]
    order = run_order(cells, repeats)
    rounds = [order[start : start + num_cells] for start in range(0, len(order), num_cells)]
    assert [{place.repeat for place in own} for own in rounds] == [{repeat + 1} for repeat in range(repeats)]
    assert all({place.cell for place in own} == set(cells) for own in rounds)
    if repeats <= num_cells:
        assert len({own[0].cell for own in rounds}) == repeats


def test_lists_come_as_text_or_toml_and_parameters_stay_with_their_strategy(tmp_path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(
        'model = ["simplemlp", "vgg1"]\nworkers = [1, 2]\nrepeats = 5\nlearning-rate = 0.5\nsteps = "all"\n'
    )
    options, _ = read_options(file, {}, {"strategy": "sync,bmuf:8,block_momentum=0.5,classical,async", "repeats": "4"})
    assert (options.model, options.workers, options.steps) == (("simplemlp", "vgg1"), (1, 2), "all")
    assert options.strategy == ("sync", "bmuf:8,block_momentum=0.5,classical", "async")
    assert (options.repeats, dict(options.run)) == (4, {"learning_rate": 0.5})


def test_options_of_runs_come_from_the_environment_too_but_not_those_of_the_grid() -> None:
    options, _ = read_options(None, {"RINGLET_SEED": "7", "RINGLET_MODEL": "vgg1"}, {"dataset": "mnist"})
    assert dict(options.run) == {"seed": 7, "dataset": "mnist"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": ","}, "the grid is empty: workers names nothing"),
        ({"workers": "1,x"}, "workers: expected numbers with commas, received '1,x'"),
        ({"workers": "0,1"}, "workers: 0 is out of range, expected 1 to 65,536"),
        ({"repeats": "0"}, "repeats: 0 is out of range"),
        ({"steps": "many"}, "steps: expected auto, all or a whole number"),
        ({"target": "accuracy"}, "expected METRIC=VALUE"),
        ({"global_batch_size": "64"}, "give batch with scaling = strong"),
    ],
)
def test_wrong_requests_are_refused_with_what_was_expected(given, message) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        read_options(None, {}, given)


def test_an_unknown_name_in_a_file_gets_the_nearest_one(tmp_path) -> None:
    file = tmp_path / "study.toml"
    file.write_text("worker = [1, 2]\n")
    with pytest.raises(ConfigError, match="Did you mean 'workers'"):
        read_options(file, {}, {})


def _design(**options) -> StudyDesign:
    return prepare(StudyOptions(**{"model": ("simplemlp",), "workers": (1, 2), **options}))[0]


def test_a_design_fixes_steps_data_and_threads_and_survives_its_file() -> None:
    design = _design(scaling="weak", distribution="both", run={"dataset": "synthetic", "input_shape": (1, 8, 8)})
    assert StudyDesign.from_dict(design.to_dict()) == design
    assert design.steps == {"simplemlp 64": 100}
    needed = 100 * 64 * 2
    assert needed / 0.9 <= design.num_samples["simplemlp"] <= needed / 0.9 + 2
    configs = {(one.workers, one.distribution): design.run_config(one, 3, "x") for one in design.cells}
    assert [configs[key].training.steps_per_epoch for key in ((1, True), (2, True), (2, False))] == [100, 100, 200]
    assert configs[2, False].workers.partition == "replicated"
    assert configs[2, True].training.local_batch_size == 64
    assert configs[1, True].training.seed == 2
    assert configs[1, True].engine.threads == configs[2, True].engine.threads


def test_automatic_steps_end_with_the_data_and_large_networks_get_few() -> None:
    assert _design().steps == {"simplemlp 64": 21}  # 1,293 digits
    large = _design(model=("vgg16_bn",), run={"dataset": "cifar10", "use_synthetic_data": True})
    assert 3 <= large.steps["vgg16_bn 64"] <= 6


def test_more_workers_than_samples_in_a_shared_batch_are_refused() -> None:
    with pytest.raises(ConfigError, match="8 workers are more than the 4 samples"):
        _design(workers=(1, 8), batch=(4,))
    assert len(_design(workers=(1, 8), batch=(4,), scaling="weak").cells) == 2


def test_names_are_checked_before_anything_runs() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'keras:tensorflow'"):
        _design(engine=("keras:tensorflo",))
    with pytest.raises(UnknownNameError, match="Did you mean 'simplemlp'"):
        _design(model=("simplemp",))
    with pytest.raises(ConfigError, match="no metric 'dice'"):
        _design(target="dice=0.5")
    with pytest.raises(ConfigError, match=r"unknown strategy 'averag'\. Did you mean 'average'"):
        _design(strategy=("averag:3",))


def test_a_network_may_name_its_data() -> None:
    design = _design(model=("simplemlp@digits", "simplemlp"), run={"dataset": "synthetic"})
    assert [design.run_config(design.cells[index], 1, "x").dataset.name for index in (0, 2)] == ["digits", "synthetic"]
