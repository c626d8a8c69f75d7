"""Exporting a trained model: build, write beside the final place, compare with the training engine, then keep."""

from __future__ import annotations

import io
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ringlet.errors import ModelFileError, UnknownNameError, UsageError
from ringlet.export.network import EXPORTERS, Exporter, fold
from ringlet.export.parity import Parity, SampleFinder, Samples, compare
from ringlet.inference.artifact import SUFFIXES, WEIGHTS_SUFFIXES, Artifact
from ringlet.inference.description import INPUT, WEIGHTS, Weights, describe
from ringlet.io.storage import Address, Place, open_location, place_of
from ringlet.launch.resources import usable_cores
from ringlet.libraries import require
from ringlet.operations import OPERATIONS
from ringlet.operations.base import ChannelOperation
from ringlet.training.devices import blas_threads
from ringlet.training.loaded_model import LoadedModel, load_model
from ringlet.training.run_directory import MODEL

NUM_SAMPLES, NUM_CALIBRATION_SAMPLES = 64, 300
_BATCH_SIZE = 32


@dataclass(frozen=True)
class Export:
    """What was written, and how it compares with the training engine."""

    network: str
    target: str
    place: Place
    """Where it was written; an object store's files are in the cache too."""
    artifact: Artifact
    parity: Parity
    num_batch_norms: int
    num_folded: int
    num_model_bytes: int
    """Of the model file that was exported."""
    calibration: str | None = None
    plain: Parity | None = None
    """The same where a program without Ringlet opens it by the defaults of the library; None: that is no other way."""
    advice: str = ""
    """How such a program gets the precision of training, if by default it does not."""

    @property
    def files(self) -> list[str]:
        """What was written: paths, or addresses."""
        return [str(self.place.parent / path.name) for path in self.artifact.files]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        parity = self.parity
        return {
            "network": self.network,
            "target": self.target,
            "files": self.files,
            "num_bytes": self.artifact.num_bytes,
            "num_model_bytes": self.num_model_bytes,
            "sha256": self.artifact.sha256(),
            "num_batch_norms": self.num_batch_norms,
            "num_folded": self.num_folded,
            "calibration": self.calibration,
            "parity": parity.to_dict(),
            "parity_by_defaults": None if self.plain is None else self.plain.to_dict(),
        }


def export_model(
    model: Path | str,
    target: str,
    path: Path | str | None = None,
    *,
    weights: str = "fp32",
    calibration: str | None = None,
    num_samples: int | None = None,
    threads: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Export:
    """Export a run directory or model file; raises unless the result computes what the training engine computes.

    ``path`` is the file to write (default: beside the model), also at an address such as ``s3://BUCKET/NAME``.
    ``calibration`` names a data set, a folder or an npz file for int8 weights and, if the run's own data cannot be
    read, to compare on. ``num_samples`` is how many samples to compare (default 64) and to calibrate with (default
    300). ``say`` takes remarks.
    """
    return plan_export(model, target, path, weights).run(calibration, num_samples, threads, say)


@dataclass(frozen=True)
class Plan:
    """A checked request: what is exported, to what, and where it goes."""

    location: Path
    """The model file."""
    target: str
    weights: Weights
    place: Place
    """The file to write."""

    def run(
        self,
        calibration: str | None = None,
        num_samples: int | None = None,
        threads: int | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> Export:
        """Do it; see :func:`export_model`."""
        cores = usable_cores() if threads is None else threads
        model = load_model(self.location, batch_size=_BATCH_SIZE, threads=cores)
        network = fold(model.spec, {**model.replica.parameters.views, **model.replica.state.views})
        description = describe(
            model.spec,
            model.normalization,
            model.labels,
            dataset=model.dataset_name,
            weights=self.weights,
            table=model.table,
            task=model.task,
        )
        finder = SampleFinder(model, description.preprocessing, self.location, calibration, say)
        origin = None
        writer: Exporter = EXPORTERS.create(self.target)
        with blas_threads(cores), draft_of(self.place) as draft:
            exported = writer.build_model(network, description)
            if self.weights == "int8":
                samples = finder.calibrate(num_samples or NUM_CALIBRATION_SAMPLES)
                origin = f"{len(samples.values)} samples, {samples.origin}"
                exported = quantize(exported, samples.values, by_name=writer.inputs_have_names)
            writer.save(exported, draft, description)
            samples = finder.compare(num_samples or NUM_SAMPLES)
            parity = self._compare(model, draft, samples, cores)
            plainly = writer.open_plainly(draft)
            plain = None if plainly is None else compare(model, plainly, samples)
        norms, left = (
            sum(isinstance(OPERATIONS[part.op], ChannelOperation) for part in parts)
            for parts in (model.spec.nodes, network.layers)
        )
        artifact, size = Artifact.find(self.place), self.location.stat().st_size
        is_worse = plain is not None and not plain.is_exact and plain.largest > 2 * parity.largest
        advice = writer.precision_advice if is_worse else ""
        counts = norms, norms - left, size
        return Export(network.name, self.target, self.place, artifact, parity, *counts, origin, plain, advice)

    def _compare(self, model: LoadedModel, draft: Path, samples: Samples, threads: int) -> Parity:
        runtime = Artifact.find(draft).open(threads=threads, batch_size=_BATCH_SIZE)
        try:
            parity = compare(model, runtime.run, samples)
        finally:
            runtime.close()
        parity.check(self.weights)
        return parity


def plan_export(model: Path | str, target: str, path: Path | str | None = None, weights: str = "fp32") -> Plan:
    """Check what can be checked before anything is read."""
    kind, precision = _checked(target, weights)
    location = Path(model) / MODEL if Path(model).is_dir() else Path(model)
    if not location.is_file():
        raise ModelFileError(f"'{model}' cannot be exported: there is no file '{location}'")
    if location.suffix.lower() in SUFFIXES and SUFFIXES[location.suffix.lower()] != "ringlet":
        raise UsageError(f"'{model}' is an export already: give the run directory or its {MODEL}")
    return Plan(location, kind, precision, _place(location, kind, precision, None if path is None else place_of(path)))


def quantize(model: Any, values: NDArray[Any], *, by_name: bool) -> Any:
    """INT8 by post-training quantisation (nncf): weights and activations in eight bits, ranges from ``values`` (n, …).

    ``by_name``: the model is one of ONNX, whose inputs are fed by name.
    """
    with redirect_stdout(io.StringIO()):  # it draws progress bars where results belong
        nncf: Any = require("nncf")
        nncf.set_log_level(logging.ERROR)
        samples = [values[index : index + 1] for index in range(len(values))]
        dataset = nncf.Dataset(samples, (lambda sample: {INPUT: sample}) if by_name else None)
        return nncf.quantize(model, dataset, subset_size=len(samples))


def _checked(target: str, weights: str) -> tuple[str, Weights]:
    kind = EXPORTERS.find(target)
    precision = next((known for known in WEIGHTS if known == weights), None)
    if precision is None:
        raise UnknownNameError("weights", weights, WEIGHTS)
    if precision not in kind.precisions:
        able = ", ".join(other.name for other in EXPORTERS.entries() if precision in other.precisions)
        raise UsageError(
            f"{kind.name} exports have {' or '.join(kind.precisions)} weights, not {precision}: that is for {able}"
        )
    return kind.name, precision


def _place(location: Path, target: str, weights: Weights, wish: Place | None) -> Place:
    """The file to write: the one wished for, else beside the model and named like it."""
    suffix = next(ending for ending, kind in SUFFIXES.items() if kind == target)
    ending = ("-torch" if target == "torch" else "") + ("" if weights == "fp32" else f"-{weights}")
    name = f"{location.stem}{ending}{suffix}"
    if isinstance(wish, Address):
        return place_for(wish, target, suffix)
    place = location.with_name(name) if wish is None else wish / name if wish.is_dir() else wish
    return place_for(place, target, suffix)


def place_for(place: Place, target: str, suffix: str) -> Place:
    """The file to write, if it can be written there."""
    if isinstance(place, Address):
        return _remote_place(place, target, suffix)
    _check_suffix(place, target, suffix)
    place = place if place.suffix else place.with_name(f"{place.name}{suffix}")
    if not place.parent.is_dir():
        raise UsageError(f"cannot write '{place}': folder '{place.parent}' does not exist. Make it first")
    _check_takes_files(place)
    second = next((ending for kind, ending in WEIGHTS_SUFFIXES.items() if kind == target), None)
    weights_file = place.with_suffix(second) if second else None
    if weights_file is not None and weights_file.exists() and not place.exists():
        raise UsageError(f"'{weights_file}' exists and would be overwritten: choose another name with -o")
    return place


def _check_takes_files(place: Path) -> None:
    """Refuse a folder in which nothing can be made, before time is spent: permissions do not tell all, as of /proc."""
    try:
        Path(tempfile.mkdtemp(prefix=".ringlet-", dir=place.parent)).rmdir()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageError(
            f"cannot write '{place}': folder '{place.parent}' takes no files ({reason}). Choose another with -o"
        ) from None
    if place.is_dir():
        raise UsageError(f"cannot write '{place}': it is a folder. Choose another name with -o")


def _remote_place(wish: Address, target: str, suffix: str) -> Address:
    """An object store has no folders: what is wished for is the file."""
    _check_suffix(Path(wish.name), target, suffix)
    open_location(wish.parent)  # or what reaches it would be found missing when all is done
    return wish if Path(wish.name).suffix else wish.parent / f"{wish.name}{suffix}"


def _check_suffix(place: Path, target: str, suffix: str) -> None:
    if place.suffix.lower() not in (suffix, ""):
        raise UsageError(f"'{place}' ends in '{place.suffix}', an export to {target} ends in '{suffix}'")


@contextmanager
def draft_of(place: Place) -> Iterator[Path]:
    """A path to write to; what is there at the end moves to ``place``, unless something was raised."""
    beside = place.parent if isinstance(place, Path) else None
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{Path(place.name).stem[:60]}-", dir=beside))
    except OSError as error:  # root may write anywhere, but no file system has to take it
        raise UsageError(f"cannot write '{place}': {error.strerror or error}. Choose another place with -o") from None
    try:
        draft = folder / place.name
        yield draft
        permissions, storage = _usual_permissions(folder), open_location(place.parent)
        files = [file for file in folder.iterdir() if file.is_file()]  # no __pycache__ of a draft that was tried
        for file in sorted(files, key=lambda file: file.name == place.name):  # the weights first
            file.chmod(permissions)
            storage.put(file, file.name)
    except OSError as error:
        raise ModelFileError(f"cannot write '{place}': {error.strerror or error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _usual_permissions(folder: Path) -> int:
    """Those of any new file of this user."""
    probe = folder / ".probe"
    probe.touch()
    permissions = probe.stat().st_mode & 0o777
    probe.unlink()
    return permissions
