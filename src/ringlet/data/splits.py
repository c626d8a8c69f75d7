"""Which folder holds which part: ``train``, ``val`` and ``test`` beneath one path, or paths of their own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ringlet.data.requests import Request
from ringlet.errors import DataError

_TRAIN = ("train", "training")
_VALIDATION = ("val", "valid", "validation")
_TEST = ("test", "testing")

PART_NAMES = {"train": _TRAIN, "validation": _VALIDATION, "test": _TEST}
"""What the folder of each part may be called."""
WHAT_IS_INSIDE = {
    "folder": "a folder of images for each class, or with images and masks",
    "masks": "folders of images and of masks",
    "imagenet": "npz files",
}


@dataclass(frozen=True)
class SplitFolders:
    """The folder of each part. A validation folder serves for test too when there is no test folder."""

    train: Path
    validation: Path | None
    test: Path | None


def split_folders(request: Request) -> SplitFolders:
    """Resolve the paths of a request to folders; without subfolders the path itself is the training part."""
    base, test_base = request.folders()
    for folder in {base, test_base}:
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder: expected one with {WHAT_IS_INSIDE.get(request.name, 'data')}")
    train = subfolder(base, _TRAIN)
    validation = subfolder(base, _VALIDATION) if train else None
    test: Path | None
    if request.test_path is not None:
        test = subfolder(test_base, _TEST) or subfolder(test_base, _VALIDATION) or test_base
    else:
        test = (subfolder(base, _TEST) if train else None) or validation
    return SplitFolders(train or base, validation, test)


def subfolder(folder: Path, names: tuple[str, ...]) -> Path | None:
    """The first folder in ``folder`` that has one of the names."""
    return next((folder / name for name in names if (folder / name).is_dir()), None)
