"""Summaries, sentences and tables of given measurements."""

from __future__ import annotations

import json

import pytest
from study_common import SHARES, cell, measurement, summary

from ringlet.bench.timing import Estimate
from ringlet.errors import DataError
from ringlet.study import tables
from ringlet.study.measurement import read_measurement, shares
from ringlet.study.verdicts import all_verdicts, workers_sentence


def test_the_first_epoch_is_left_out_if_there_are_others() -> None:
    found = summary({cell(1): [measurement([9.0, 2.0, 4.0]), measurement([9.0, 5.0, 5.0])]}).rows[0]
    assert found.seconds == Estimate(4.0, 3.0, 5.0, 2)
    assert summary({cell(1): [measurement([9.0])]}).rows[0].seconds.median == 9.0


def test_speed_up_and_efficiency_are_those_of_samples_per_second() -> None:
    one, two = cell(1), cell(2)
    found = summary({one: [measurement([1.0, 2.0])] * 3, two: [measurement([1.0, 1.25])] * 3})
    scaling = found.scaling(found.rows[1])
    assert (scaling.speed_up.median, scaling.efficiency) == (1.6, 0.8)
    assert found.scaling(found.rows[0]).efficiency == 1.0


def test_work_that_workers_repeat_counts_once() -> None:
    alone, shared, all_each = cell(1), cell(2), cell(2, distribution=False)
    runs = {
        alone: [measurement([1, 2.0])] * 2,
        shared: [measurement([1, 1.0])] * 2,
        all_each: [measurement([1, 2.0], samples=2000)] * 2,
    }
    found = summary(runs)
    assert [row.rate.median for row in found.rows] == [500, 1000, 500]
    assert found.scaling(found.rows[2]).speed_up.median == 1.0
    (verdict,) = [one for one in all_verdicts(found) if one.dimension == "distribution"]
    assert verdict.sentence.startswith("training with data distribution is 2.00x as fast as training without")


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (Estimate(1.8, 1.75, 1.9, 3), "The second worker pays: 1.80x, 90 % efficiency."),
        (
            Estimate(1.5, 1.2, 1.9, 3),
            "The second worker probably pays: 1.50x (between 1.20x and 1.90x), 75 % efficiency.",
        ),
        (
            Estimate(1.3, 1.1, 1.6, 3),
            "The second worker probably pays little: 1.30x (between 1.10x and 1.60x), 65 % efficiency.",
        ),
        (Estimate(1.8, 1.5, 1.9, 3), "The second worker pays: 1.80x (between 1.50x and 1.90x), 90 % efficiency."),
        (Estimate(1.2, 1.15, 1.25, 3), "The second worker pays little: 1.20x, 60 % efficiency."),
        (Estimate(0.8, 0.78, 0.81, 3), "The second worker does not pay: 0.80x, 40 % efficiency."),
    ],
)
def test_a_sentence_says_whether_a_worker_pays(times, words) -> None:
    assert workers_sentence(1, 2, times, times.median / 2) == words


def test_noise_that_is_larger_than_the_difference_is_called_so() -> None:
    sentence = workers_sentence(2, 8, Estimate(1.05, 0.9, 1.2, 3), 0.26)
    assert "no verdict" in sentence
    assert "0.90x to 1.20x: noise is larger than the difference" in sentence
    noisy = summary({cell(1): [measurement([1, 2.0]), measurement([1, 2.4])], cell(2): [measurement([1, 2.2])] * 2})
    assert [verdict.is_noise for verdict in all_verdicts(noisy)] == [True]


def test_one_measurement_alone_gives_no_verdict() -> None:
    found = summary({cell(1): [measurement([1.0])], cell(2): [measurement([0.5])]})
    assert "one measurement alone" in all_verdicts(found)[0].sentence


def test_engines_are_compared_at_each_number_of_workers_and_the_faster_is_named() -> None:
    runs = {
        cell(workers, engine=engine): [measurement([1, seconds / workers])] * 2
        for engine, seconds in (("torch", 4.0), ("native", 2.0))
        for workers in (1, 2)
    }
    found = [one for one in all_verdicts(summary(runs)) if one.dimension == "engine"]
    assert [(one.context, one.sentence) for one in found] == [
        ("net, 1 worker", "native is 2.00x as fast as torch."),
        ("net, 2 workers", "native is 2.00x as fast as torch."),
    ]


def test_time_to_accuracy_adds_up_training_time_and_may_not_be_reached() -> None:
    good = measurement([1.0, 2.0, 3.0], accuracies=[0.5, 0.92, 0.95])
    bad = measurement([1.0, 2.0, 3.0], accuracies=[0.5, 0.6, 0.7])
    found = summary({cell(1): [good, bad, good], cell(2): [bad, bad, bad]}, target="accuracy=90%")
    assert found.target == ("val_accuracy", 0.9)
    assert found.rows[0].time_to("val_accuracy", 0.9) == {1: 3.0, 2: None, 3: 3.0}
    last = [row[-1] for row in tables.results_table(found).rows]
    assert last == ["3.00 (2 of 3)", "not reached"]
    assert tables.results_table(found).columns[-1] == "s to val_accuracy 90%"


def test_failed_cells_keep_their_row_and_their_reason() -> None:
    found = summary({cell(1): [measurement([1, 1.0])] * 2, cell(2): ["exit code 4: diverged", "exit code 4: diverged"]})
    table = tables.results_table(found)
    assert table.rows[1][:2] == ("2", "failed")
    assert tables.failures_table(found).rows[0] == ("net, 2 workers", "1", "exit code 4: diverged")
    assert all_verdicts(found) == []


def test_tables_have_a_text_for_every_column_and_show_shares() -> None:
    found = summary({cell(workers): [measurement([1, 1.0])] * 2 for workers in (1, 2)})
    table = tables.results_table(found)
    assert all(len(row) == len(table.columns) for row in table.rows)
    place = table.columns.index("compute")
    assert table.rows[0][place : place + 5] == tuple(f"{100 * share:.0f}%" for share in SHARES.values())
    epochs = tables.epochs_table(found)
    assert epochs.columns[1:4] == ("1 worker: s", "1 worker: acc", "1 worker: val_acc")
    assert all(len(row) == len(epochs.columns) for row in epochs.rows)


def test_shares_are_of_all_workers_and_leave_validation_out() -> None:
    found = shares(["forward", "wait", "validation", "reduce"], [[1.0, 0.0, 9.0, 1.0], [1.0, 1.0, 9.0, 0.0]])
    assert found == {"compute": 0.5, "exchange": 0.25, "wait": 0.25, "data": 0.0, "other": 0.0}
    assert shares(["forward"], [[0.0]]) == {}


@pytest.mark.parametrize("text", ["", "no json\n", '{"event": "run_started"}\n', "[]\n"])
def test_a_log_without_a_finished_run_is_refused(tmp_path, text) -> None:
    log = tmp_path / "events.ndjson"
    log.write_text(text)
    with pytest.raises(DataError, match=r"damaged|not the log of a finished run"):
        read_measurement(log)


def test_metrics_that_are_not_numbers_are_left_out(tmp_path) -> None:
    about = {"num_parameters": 1, "global_batch_size": 2, "num_train_samples": 3, "device": "cpu", "kernels": "x"}
    epoch = {"epoch": 1, "seconds": 1.0, "validation_seconds": 0.0, "num_samples": 3}
    events = [
        {"event": "run_started", **about},
        {"event": "epoch_finished", **epoch, "figures": {"loss": "nan", "accuracy": 0.5}},
        {"event": "training_finished"},
    ]
    log = tmp_path / "events.ndjson"
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    assert dict(read_measurement(log).epochs[0].metrics) == {"accuracy": 0.5}
