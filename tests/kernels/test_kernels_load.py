"""Which kernels are picked, and that each implementation offers all of them."""

from __future__ import annotations

import pytest

import ringlet.kernels as kernels_package
from ringlet.errors import KernelError, UnknownNameError
from ringlet.kernels import available, load
from ringlet.kernels.contract import KERNELS


@pytest.fixture
def without_compiled(monkeypatch: pytest.MonkeyPatch):
    """As if the compiled kernels had never been built."""

    def failure(name: str) -> str | None:
        return "No module named 'ringlet.kernels._native'" if name == "compiled" else None

    for function in (kernels_package.available, kernels_package._load):
        function.cache_clear()
    monkeypatch.setattr(kernels_package, "_import_failure", failure)
    yield
    for function in (kernels_package.available, kernels_package._load):
        function.cache_clear()


def test_an_argument_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("RINGLET_KERNELS", "nonsense")
    assert load("reference").name == "reference"


def test_the_environment_chooses_when_there_is_no_argument(monkeypatch):
    monkeypatch.setenv("RINGLET_KERNELS", "reference")
    assert load().name == "reference"


@pytest.mark.parametrize("value", [None, "", "  "])
def test_without_a_wish_the_best_available_ones_are_loaded(monkeypatch, value):
    monkeypatch.delenv("RINGLET_KERNELS", raising=False)
    if value is not None:
        monkeypatch.setenv("RINGLET_KERNELS", value)
    assert load().name == available()[0]


def test_without_a_compiler_the_reference_ones_are_loaded(monkeypatch, without_compiled):
    monkeypatch.delenv("RINGLET_KERNELS", raising=False)
    assert available() == ("reference",)
    assert load().name == "reference"


def test_demanding_compiled_kernels_that_are_missing_says_how_to_get_them(without_compiled):
    with pytest.raises(KernelError, match=r"_native.*C\+\+20 compiler.*RINGLET_KERNELS=reference"):
        load("compiled")


def test_a_mistyped_name_is_an_error_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="Did you mean 'reference'"):
        load("referense")


def test_a_mistyped_environment_variable_is_named_in_the_error(monkeypatch):
    monkeypatch.setenv("RINGLET_KERNELS", "fast")
    with pytest.raises(UnknownNameError, match="RINGLET_KERNELS"):
        load()


def test_loading_twice_gives_the_same_object():
    assert load("reference") is load("reference")


@pytest.mark.parametrize("name", [*KERNELS, "prepare", "in_turn"])
def test_every_kernel_of_the_contract_exists(kernels, name):
    assert callable(getattr(kernels, name))


def test_every_implementation_knows_its_name(kernels):
    assert kernels.name in available()
