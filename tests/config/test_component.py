"""Components and their registries: one declaration, and what follows from it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ringlet import RunConfig
from ringlet.component import Component, OptionError, Problem, Registry, affects_result, forms, option, required
from ringlet.config.describe import help_text, json_schema, option_values, template
from ringlet.errors import ConfigError, UnknownNameError
from ringlet.optim import OPTIMIZERS, SCHEDULES
from ringlet.optim.base import Optimizer

SHAPES: Registry[Any] = Registry("shape", package="ringlet.errors", group="optimizers")


class Shape(Component):
    """A shape."""

    registry: ClassVar[Registry[Any] | None] = SHAPES


class Circle(Shape):
    """A round one.

    With more to say about it.
    """

    name: ClassVar[str] = "circle"
    argument: ClassVar[str] = "radius"
    presets: ClassVar[Any] = {"dot": {"radius": 0.1}}
    radius: float = required("half of its width", gt=0)
    filled: bool = option(False, "paint the inside", affects_result=False)
    centre: tuple[float, ...] = option((0.0, 0.0), "where it is")

    def contradictions(self) -> Iterable[Problem]:
        """A place has two numbers."""
        if len(self.centre) != 2:
            yield Problem("centre", f"expected two numbers, received {len(self.centre)}")


class Drawing(Shape):
    """Shapes within shapes."""

    name: ClassVar[str] = "Two-Part_drawing"
    inner: Shape = option(Circle(radius=1.0), "what is inside")


@pytest.mark.parametrize("name", ["circle", "Circle", " CIR-CLE ", "c_ircle"])
def test_names_ignore_case_dashes_and_underscores(name: str) -> None:
    assert SHAPES.find(name) is Circle


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("circle:2", Circle(radius=2.0)),
        ("circle:2,filled", Circle(radius=2.0, filled=True)),
        ("circle:2,filled=no", Circle(radius=2.0, filled=False)),
        ("dot", Circle(radius=0.1)),
        ("circle,radius=3", Circle(radius=3.0)),
        ("twopartdrawing,inner=circle:3", Drawing(inner=Circle(radius=3.0))),
    ],
)
def test_a_text_names_a_component_and_a_component_its_text(text: str, made: Shape) -> None:
    assert SHAPES.parse(text) == made
    assert SHAPES.parse(str(made)) == made
    assert SHAPES.made(made.table()) == made
    assert hash(made) == hash(SHAPES.parse(text))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Circle(), r"shape 'circle': radius: shape 'circle' needs a value"),
        (lambda: Circle(radius=-1), r"radius: -1 is out of range, expected greater than 0"),
        (lambda: Circle(radius="2"), r"radius: expected a number, received '2'"),
        (lambda: Circle(radius=1, centre=[1.0]), r"centre: expected two numbers, received 1"),
        (
            lambda: Circle(radius=1, radus=2),
            r"radus: no such option. Did you mean 'radius'\? Options of shape 'circle'",
        ),
        (lambda: SHAPES.parse("circle:"), r"names no radius: expected circle:RADIUS\[,filled,centre=…\]"),
        (lambda: SHAPES.parse("circle:2,filed"), r"'filed' is not understood"),
        (lambda: SHAPES.made({"radius": 2}), r"the table has no name"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make()
    assert len(str(caught.value).splitlines()) == 1
    assert "pydantic" not in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        Circle(radius=-1, filled=3)
    assert [problem.option for problem in caught.value.problems] == ["radius", "filled"]


def test_an_unknown_name_is_an_error_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown shape 'circel'\. Did you mean 'circle'"):
        SHAPES.find("circel")


def test_a_second_class_of_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="shape 'circle' is defined twice"):

        class Other(Shape):
            name: ClassVar[str] = "circle"


def test_declarations_tell_help_limits_and_what_matters() -> None:
    assert Circle.summary() == "A round one"
    assert forms(Circle) == "circle:RADIUS[,filled,centre=…]"
    assert affects_result(Circle.model_fields["radius"])
    assert not affects_result(Circle.model_fields["filled"])


def test_copies_are_checked() -> None:
    circle = Circle(radius=2.0)
    assert circle.replace(filled=True) == Circle(radius=2.0, filled=True)
    with pytest.raises(OptionError):
        circle.replace(radius=0)
    with pytest.raises(Exception, match="frozen"):
        circle.radius = 3.0  # type: ignore[misc]


def test_a_class_that_a_program_defines_is_known_everywhere() -> None:
    class Mine(Optimizer):
        """My own."""

        name: ClassVar[str] = "my_own_optimizer"
        boldness: float = option(0.25, "how bold it is", ge=0, le=1)

        @property
        def state_names(self) -> tuple[str, ...]:
            return ()

        def _apply(self, *_: Any) -> None:
            raise AssertionError

    try:
        assert RunConfig(optimizer="my-own-optimizer", boldness=0.5).optimizer == Mine(boldness=0.5)
        assert RunConfig(optimizer=Mine()).to_dict()["optimizer"]["boldness"] == 0.25
        assert "--optimizer.boldness NUMBER" in help_text("optimizer")
        assert "my_own_optimizer" in option_values("optimizer")
        assert "#boldness = 0.25" in template(RunConfig(optimizer="my_own_optimizer"))
        table = json_schema()["properties"]["optimizer"]["anyOf"][1]
        assert table["properties"]["boldness"]["maximum"] == 1
        with pytest.raises(ConfigError, match=r"boldness: 2 is out of range, expected at most 1"):
            RunConfig(optimizer="my_own_optimizer", boldness=2)
    finally:
        OPTIMIZERS._entries.pop("myownoptimizer")


def test_a_module_is_all_that_a_package_needs_for_a_new_component(tmp_path: Path, monkeypatch) -> None:
    package = tmp_path / "own_shapes"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "broken.py").write_text("raise ImportError('not yet')\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry: Registry[Any] = Registry("own shape", package="own_shapes", group="optimizers")
    with pytest.raises(ImportError, match="not yet"):
        registry.names()
    (package / "broken.py").unlink()
    monkeypatch.setattr(sys.modules["own_shapes"], "registry", registry, raising=False)
    (package / "square.py").write_text(
        "from typing import Any, ClassVar\nimport own_shapes\nfrom ringlet.component import Component\n"
        "class Square(Component):\n    registry: ClassVar[Any] = own_shapes.registry\n"
        "    name: ClassVar[str] = 'square'\n"
    )
    assert registry.names() == ["square"]


def test_lists_are_in_the_order_of_modules_whoever_was_imported_first() -> None:
    modules = [entry.__module__ for entry in SCHEDULES.entries() if entry.__module__.startswith("ringlet.")]
    assert modules == sorted(modules)
