"""What all measurements share: the turn-taking timer, ranges and ratios, the look of plots, the machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringlet
from ringlet import machine
from ringlet.bench import report
from ringlet.bench.measurement import Measurement
from ringlet.bench.plotting import COLOURS, INK, PHASE_COLOURS, inline_svg
from ringlet.bench.timing import Estimate, Variant, estimate, fastest, ratio, take_turns, turns

positive = st.floats(0.01, 100)
by_repeat = st.dictionaries(st.integers(1, 4), st.lists(positive, min_size=1, max_size=4), min_size=1)


@given(st.lists(positive, min_size=1))
def test_an_estimate_lies_within_its_range(values) -> None:
    found = estimate(values)
    assert found.low <= found.median <= found.high
    assert found.spread >= 0


@given(by_repeat, by_repeat)
def test_a_ratio_lies_in_its_range_and_its_inverse_is_the_other_way_round(above, below) -> None:
    found, inverse = ratio(above, below), ratio(below, above)
    if not above.keys() & below.keys():
        assert found is None
        return
    assert found.low <= found.median * (1 + 1e-9)
    assert found.median <= found.high * (1 + 1e-9)
    assert inverse.low == pytest.approx(1 / found.high)


def test_a_slow_hour_that_meets_both_cells_cancels_out() -> None:
    one, two = {1: [1.0], 2: [3.0], 3: [1.0]}, {1: [2.0], 2: [6.0], 3: [2.0]}
    assert ratio(two, one) == Estimate(2.0, 2.0, 2.0, 3)


def test_variants_take_turns_and_every_other_round_runs_backwards() -> None:
    assert "".join(turns("abc", 3)) == "abccbaabc"


def test_every_variant_has_a_time_for_each_round_and_the_fastest_is_found() -> None:
    entered: list[str] = []
    quick = Variant("quick", lambda: None, enter=lambda: entered.append("quick"))
    slow = Variant("slow", lambda: sum(range(20_000)))
    take_turns([slow, quick], 3, round_seconds=0.0)
    assert len(quick.seconds) == len(slow.seconds) == 3
    assert entered == ["quick"] * 4  # once to find out how many calls make a round
    assert fastest([slow, quick]) is quick
    assert slow.to_dict() == {"name": "slow", **estimate(slow.seconds).to_dict()}


def test_a_variant_may_measure_itself_and_one_is_prepared_before_each_call() -> None:
    calls: list[str] = []
    own = Variant("own", lambda: 7.0, measures_itself=True)
    prepared = Variant("prepared", lambda: calls.append("call"), prepare=lambda: calls.append("prepare"))
    take_turns([own, prepared], 2, round_seconds=0.0)
    assert own.seconds == [7.0, 7.0]
    assert calls == ["prepare", "call"] * (len(calls) // 2)


def test_svg_of_two_plots_can_stand_in_one_page() -> None:
    text = (
        '<?xml version="1.0"?><!DOCTYPE svg "http://x"><svg xmlns="http://www.w3.org/2000/svg" width="9pt" '
        'viewBox="0 0 72 36"><metadata>http://x</metadata><g id="a"/><use xlink:href="#a" clip-path="url(#a)"/></svg>'
    )
    assert inline_svg(text, "p") == (
        '<svg viewBox="0 0 72 36" style="max-width: 96px" role="img"><g id="p-a"/>'
        '<use href="#p-a" clip-path="url(#p-a)"/></svg>'
    )


def test_the_machine_is_described_also_where_the_system_says_little(tmp_path: Path) -> None:
    found = machine.describe_machine()
    facts = found.facts()
    assert {"Processor", "Cores", "Memory", "System", "Python", "Kernels", "Libraries"} <= facts.keys()
    assert "numpy" in facts["Libraries"]
    assert found.versions.items() >= {"ringlet": ringlet.__version__}.items()
    assert found.processor in found.summary()
    assert found.to_dict()["cores"] >= 1
    assert machine.processor_name(tmp_path / "missing")
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Fast One\n")
    assert machine.processor_name(tmp_path / "cpuinfo") == "Fast One"


def test_runs_note_the_software_that_wrote_them() -> None:
    assert machine.software_versions().keys() == {"ringlet", "python", "numpy"}
    assert machine.versions("no-such-library") == {}


@pytest.mark.parametrize("collectives", [["barrier"], ["allreduce"], ["allreduce", "broadcast", "barrier"]])
def test_times_of_collectives_are_drawn_whichever_were_measured(tmp_path: Path, collectives: list[str]) -> None:
    pytest.importorskip("matplotlib", reason="plots need Matplotlib: pip install 'ringlet[report]'")
    sizes = {name: (0,) if name == "barrier" else (1024, 1 << 20) for name in collectives}
    entries = [Measurement("ringlet", name, size, 1e-5) for name in collectives for size in sizes[name]]
    report.plot(entries, "two workers").save(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert [row[1] for row in report.table_rows(entries)[1]][-1] == ("" if "barrier" in collectives else "1 MB")


def test_plots_have_the_colours_of_the_live_page() -> None:
    page = Path(ringlet.__file__).parent / "watch" / "page"
    light = (page / "style.css").read_text(encoding="utf-8").split('[data-theme="dark"]')[0]
    found = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", light))
    assert {name: found[name] for name in PHASE_COLOURS} == PHASE_COLOURS
    assert found["text"] == INK
    runs = re.search(r"light: \[(.*?)\]", (page / "runs.js").read_text(encoding="utf-8"))
    assert tuple(re.findall(r"#[0-9a-f]{6}", runs[1])) == COLOURS
