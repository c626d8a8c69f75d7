"""What can be fetched, from where, and the SHA-256 each file must have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """One file of a publisher; ``members`` are what an archive unpacks to: (path, size)."""

    name: str
    size: int
    sha256: str
    members: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class RemoteDataset:
    """A data set as published; the base addresses are tried in order."""

    name: str
    base_urls: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    licence: str

    @property
    def num_bytes(self) -> int:
        """What is transferred in total."""
        return sum(file.size for file in self.files)


_CIFAR10_MEMBERS = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")

REMOTE: dict[str, RemoteDataset] = {
    dataset.name: dataset
    for dataset in (
        RemoteDataset(
            "mnist",
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
            (
                RemoteFile(
                    "train-images-idx3-ubyte.gz",
                    9_912_422,
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                ),
                RemoteFile(
                    "train-labels-idx1-ubyte.gz",
                    28_881,
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                ),
                RemoteFile(
                    "t10k-images-idx3-ubyte.gz",
                    1_648_877,
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                ),
                RemoteFile(
                    "t10k-labels-idx1-ubyte.gz",
                    4_542,
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
            ),
            "CC BY-SA 3.0",
        ),
        RemoteDataset(
            "fashion-mnist",
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            (
                RemoteFile(
                    "train-images-idx3-ubyte.gz",
                    26_421_880,
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                ),
                RemoteFile(
                    "train-labels-idx1-ubyte.gz",
                    29_515,
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                ),
                RemoteFile(
                    "t10k-images-idx3-ubyte.gz",
                    4_422_102,
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                ),
                RemoteFile(
                    "t10k-labels-idx1-ubyte.gz",
                    5_148,
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                ),
            ),
            "MIT",
        ),
        RemoteDataset(
            "cifar10",
            ("https://www.cs.toronto.edu/~kriz/",),
            (
                RemoteFile(
                    "cifar-10-binary.tar.gz",
                    170_052_171,
                    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                    tuple((f"cifar-10-batches-bin/{name}", 30_730_000) for name in _CIFAR10_MEMBERS),
                ),
            ),
            "none stated by its publisher",
        ),
        RemoteDataset(
            "cifar100",
            ("https://www.cs.toronto.edu/~kriz/",),
            (
                RemoteFile(
                    "cifar-100-binary.tar.gz",
                    168_513_733,
                    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                    (("cifar-100-binary/train.bin", 153_700_000), ("cifar-100-binary/test.bin", 30_740_000)),
                ),
            ),
            "none stated by its publisher",
        ),
    )
}
