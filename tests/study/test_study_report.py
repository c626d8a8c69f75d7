"""The page, the plots and the directory, from given measurements."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from study_common import cell, design, measurement, summary

from ringlet.errors import DataError, UsageError
from ringlet.study import page
from ringlet.study.design import StudyDesign
from ringlet.study.directory import create_study, open_study
from ringlet.study.grid import Place
from ringlet.study.report import write_report
from ringlet.study.summary import Summary

VOID = {"wbr", "meta", "br", "img", "hr", "link", "input"}
LINKING = {"src", "href", "xlink:href", "srcset", "action", "data", "poster"}


class Checker(HTMLParser):
    """Every element is closed in order, names are unique, and nothing points outside the page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        for name, value in attrs:
            self.ids += [value] if name == "id" and value else []
            if name in LINKING and not (value or "").startswith("#"):
                self.outside.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def checked(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    return checker


def example(**options) -> Summary:
    runs = {
        cell(workers, engine=engine, model=model): [measurement([2, 1.0 / workers, 1.1 / workers])] * 2
        for model in ("net", "<b>&net")
        for engine in ("native", "keras:jax")
        for workers in (1, 2, 4)
    }
    runs[cell(4, engine="keras:jax", model="net")] = ["exit code 3: <script>alert(1)</script>"]
    return summary(runs, **options)


def test_the_report_is_one_sound_page_without_links_and_its_plots_are_pictures(own_folder: Path) -> None:
    found = example(target="accuracy=0.6", repeats=2)
    study = create_study(own_folder / "s", found.design)
    document = write_report(study, found)
    text = (study.path / "report.html").read_text(encoding="utf-8")
    checker = checked(text)
    assert checker.outside == []
    assert len(checker.ids) == len(set(checker.ids))
    assert not re.search(r"https?:|url\((?!#)|@import", text)
    assert not checker.seen & {"script", "b", "link", "iframe"}
    assert {"svg", "table", "h1"} <= checker.seen
    assert "currentColor" in text
    names = sorted(picture.name for picture in (study.path / "plots").iterdir())
    assert names == ["efficiency.png", "learning.png", "shares.png", "speed-up.png"]
    for picture in (study.path / "plots").iterdir():
        with Image.open(picture) as image:
            image.load()
            assert image.format == "PNG"
            assert min(image.size) > 200
            assert len(image.convert("RGB").getcolors(1 << 20)) > 10
    assert json.loads((study.path / "study.json").read_text()) == document
    assert document["cells"][1]["efficiency"] == pytest.approx(1.0)
    assert document["machine"]["Ringlet"]


def test_without_matplotlib_the_report_says_how_to_get_plots(own_folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("ringlet.study.report.can_draw", lambda: False)
    found = example(repeats=2)
    study = create_study(own_folder / "s", found.design)
    write_report(study, found)
    text = (study.path / "report.html").read_text(encoding="utf-8")
    assert "pip install &quot;ringlet[report]&quot;" in text
    assert "svg" not in checked(text).seen
    assert not (study.path / "plots").exists()


def test_a_study_without_any_measurement_still_has_a_report(own_folder: Path) -> None:
    found = summary({cell(1): ["exit code 1: no data"], cell(2): []})
    study = create_study(own_folder / "s", found.design)
    write_report(study, found)
    assert "no data" in (study.path / "report.html").read_text(encoding="utf-8")


def test_page_parts_escape_what_they_are_given() -> None:
    nasty = "<i>&'\""
    parts = [
        page.html_table([nasty], [[nasty]]),
        page.facts({nasty: nasty}),
        page.verdicts([(nasty, nasty, False)]),
    ]
    parts += [page.section(nasty, page.paragraph(nasty)), page.folded(nasty), page.figure("<svg></svg>", nasty)]
    assert "i" not in checked(page.page(nasty, nasty, parts)).seen


def test_a_study_is_read_back_and_damaged_records_count_as_missing(own_folder: Path) -> None:
    study = create_study(own_folder / "s", design([cell(1)]))
    place = Place(cell(1), 1)
    study.clear(place)
    assert study.read_record(place) is None
    study.write_record(place, {"status": "failed", "reason": "x"})
    assert study.read_record(place)["reason"] == "x"
    assert study.read_record(Place(cell(1), 2)) is None
    study.record(place).write_text('{"format": 1')
    assert study.read_record(place) is None
    assert open_study(study.path).design == study.design


def test_a_study_that_runs_already_or_is_damaged_is_refused(own_folder: Path) -> None:
    study = create_study(own_folder / "s", design([cell(1)]))
    with (
        study.locked(),
        pytest.raises(UsageError, match="is being run by another process"),
        open_study(study.path).locked(),
    ):
        pass
    with pytest.raises(UsageError, match="exists and is not empty"):
        create_study(study.path, study.design)
    (study.path / "plan.json").write_text('{"options": {"model": 3}}')
    with pytest.raises(DataError, match=r"plan\.json' is damaged"):
        open_study(study.path)


def test_a_design_knows_its_options(own_folder: Path) -> None:
    made = design([cell(1), cell(2)], target="accuracy=0.9", workers=(1, 2), run={"image_size": (8, 8)})
    assert StudyDesign.from_dict(json.loads(json.dumps(made.to_dict()))) == made
