"""Which samples a trained model is evaluated on: a part of the data of its run, or files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ringlet.config import RunConfig, gather
from ringlet.data import Dataset, Source
from ringlet.data.formats import DATASETS
from ringlet.errors import DataError, UsageError
from ringlet.training.components import check_fit, make_dataset
from ringlet.training.loaded_model import LoadedModel, matching_dataset
from ringlet.training.run_directory import CONFIG

PARTS = ("test", "validation", "train")


class Selection(NamedTuple):
    """What was chosen: the part (``test``, ``validation``, ``train``, or the path that was given) and its samples."""

    name: str
    source: Source
    dataset: str

    @property
    def part(self) -> str:
        """What results are called: the part of a data set, or ``given`` for files of their own."""
        return self.name if self.name in PARTS else "given"


def select_source(
    location: Path,
    model: LoadedModel,
    on: str | None = None,
    *,
    dataset: str | None = None,
    path: str | None = None,
    test_path: str | None = None,
) -> Selection:
    """The samples that ``on`` names: ``test``, ``validation`` or ``train`` of the data set, or a path.

    ``location`` is the run directory or model file that ``model`` came from. A run's own data are loaded as it has
    loaded them, so that ``validation`` is what it has validated on. Without ``on`` it is the test data, or where there
    are none the validation data. ``dataset``, ``path`` and ``test_path`` name other data.
    """
    if on is not None and on not in PARTS:
        return Selection(on, _files(on, location, model), on)
    found = _data(location, model, dataset, path, test_path)
    check_fit(model.spec, found)
    part = on or ("test" if found.test is not None or found.validation is None else "validation")
    source: Source | None = getattr(found, part)
    if source is None:
        known = [name for name in PARTS if getattr(found, name) is not None]
        hint = f"there are {', '.join(known)}: name one with --on, or give a path"
        raise DataError(f"data set '{found.name}' has no {part} data; {hint}")
    return Selection(part, source, found.name)


def _data(location: Path, model: LoadedModel, dataset: str | None, path: str | None, test_path: str | None) -> Dataset:
    """The data set that is named, else that of the run, else the one that the model file names."""
    run = _run(location)
    if run is not None and dataset is None:
        given = {"dataset_path": path, "dataset_test_path": test_path}
        return make_dataset(run.replace(**{name: value for name, value in given.items() if value is not None}))
    name = dataset or model.dataset_name
    if not name:
        raise UsageError("the model file names no data set: give --dataset")
    return matching_dataset(model.spec, name, path=path, test_path=test_path, table=model.table, task=model.task)


def _files(on: str, location: Path, model: LoadedModel) -> Source:
    """All samples of a folder or file, in the format of the run's data; of one that has parts its test data."""
    kind, _, rest = on.partition(":")
    named = bool(rest) and DATASETS.knows(kind)
    place = Path(rest if named else on).expanduser()
    if not place.exists():
        raise UsageError(f"--on {on}: expected {', '.join(PARTS)}, or a folder or file; '{place}' does not exist")
    form = kind if named else _format(place, location, model)
    found = matching_dataset(model.spec, form, path=str(place), table=model.table, task=model.task)
    check_fit(model.spec, found)
    if found.test is None and found.validation is not None:
        raise UsageError(f"--on {on}: it has training and validation data. Name the folder of one of them")
    if model.labels and found.class_names and tuple(found.class_names) != model.labels:
        raise DataError(
            f"--on {on}: its classes are {_listed(found.class_names)}, those of the model {_listed(model.labels)}: "
            "expected the same, in folders of the same names"
        )
    return found.train if found.test is None else found.test


def _format(place: Path, location: Path, model: LoadedModel) -> str:
    """That of the run's own files; else what the place looks like."""
    if model.table is not None:
        return "table"
    run = _run(location)
    if run is not None and run.dataset.origin == "your files" and (run.dataset.name == "npz") == place.is_file():
        return run.dataset.name
    return "npz" if place.is_file() else "folder"


def _run(location: Path) -> RunConfig | None:
    """The configuration of the run that a model belongs to, if it lies in a run directory."""
    file = (location if location.is_dir() else location.parent) / CONFIG
    return gather(file).build() if file.is_file() else None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
