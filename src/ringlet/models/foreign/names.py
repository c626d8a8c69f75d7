"""What other packages call the layers of a network, by the structure that its paper describes.

Each function yields names in the order in which the zoo's own function builds its layers; shapes and numbers are
checked when weights are put into place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ringlet.errors import ModelFileError
from ringlet.models import zoo
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo import densenet, resnet
from ringlet.models.zoo.chains import REPEATS as VGG_REPEATS
from ringlet.models.zoo.inception import GOOGLENET_STAGES

Names = Iterator[str]
_PARTS = "abcde"


@dataclass(frozen=True)
class NameMap:
    """The layers of a network as a package calls them, and what differs between the two."""

    names: tuple[str, ...]
    epsilon: float = 1e-5
    """That of the package's batch norms."""
    remarks: tuple[str, ...] = ()


# -- PyTorch: torchvision, and timm where it differs -------------------------------------------------------------------
def _resnet(depth: int) -> Names:
    yield from ("conv1", "bn1")
    wide = depth >= resnet.BOTTLENECK_FROM
    for stage, num_blocks in enumerate(resnet.REPEATS[depth], 1):
        for block in range(num_blocks):
            for number in range(1, 4 if wide else 3):
                yield from (f"layer{stage}.{block}.conv{number}", f"layer{stage}.{block}.bn{number}")
            if block == 0 and (wide or stage > 1):
                yield from (f"layer{stage}.{block}.downsample.0", f"layer{stage}.{block}.downsample.1")
    yield "fc"


def _vgg(depth: int, norm: bool) -> Names:
    place = 0
    for repeats in VGG_REPEATS[depth]:
        for _ in range(repeats):
            yield f"features.{place}"
            if norm:
                yield f"features.{place + 1}"
            place += 3 if norm else 2
        place += 1
    yield from ("classifier.0", "classifier.3", "classifier.6")


def _densenet(depth: int) -> Names:
    yield from ("features.conv0", "features.norm0")
    for block, num_layers in enumerate(densenet.REPEATS[depth], 1):
        if block > 1:
            yield from (f"features.transition{block - 1}.norm", f"features.transition{block - 1}.conv")
        for layer in range(1, num_layers + 1):
            prefix = f"features.denseblock{block}.denselayer{layer}"
            yield from (f"{prefix}.{name}" for name in ("norm1", "conv1", "norm2", "conv2"))
    yield from ("features.norm5", "classifier")


def _with_norm(names: Names) -> Names:
    """A convolution and its batch norm for each name."""
    for name in names:
        yield from (f"{name}.conv", f"{name}.bn")


def _googlenet() -> Names:
    yield from _with_norm(iter(("conv1", "conv2", "conv3")))
    for stage, blocks in enumerate(GOOGLENET_STAGES, 3):
        for letter, _ in zip(_PARTS, blocks, strict=False):
            branches = ("branch1", "branch2.0", "branch2.1", "branch3.0", "branch3.1", "branch4.1")
            yield from _with_norm(f"inception{stage}{letter}.{branch}" for branch in branches)
    yield "fc"


_INCEPTION_BLOCKS = {
    "A": ("branch1x1", "branch5x5_1", "branch5x5_2", "branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3",
          "branch_pool"),
    "B": ("branch3x3", "branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"),
    "C": ("branch1x1", "branch7x7_1", "branch7x7_2", "branch7x7_3", "branch7x7dbl_1", "branch7x7dbl_2",
          "branch7x7dbl_3", "branch7x7dbl_4", "branch7x7dbl_5", "branch_pool"),
    "D": ("branch3x3_1", "branch3x3_2", "branch7x7x3_1", "branch7x7x3_2", "branch7x7x3_3", "branch7x7x3_4"),
    "E": ("branch3x3_1", "branch3x3dbl_1", "branch3x3dbl_2", "branch3x3_2a", "branch3x3_2b", "branch3x3dbl_3a",
          "branch3x3dbl_3b", "branch1x1", "branch_pool"),
}  # fmt: skip
_INCEPTION = ("A5b", "A5c", "A5d", "B6a", "C6b", "C6c", "C6d", "C6e", "D7a", "E7b", "E7c")


def _inception() -> Names:
    stem = ("1a_3x3", "2a_3x3", "2b_3x3", "3b_1x1", "4a_3x3")
    yield from _with_norm(f"Conv2d_{name}" for name in stem)
    for own in _INCEPTION:
        yield from _with_norm(f"Mixed_{own[1:]}.{branch}" for branch in _INCEPTION_BLOCKS[own[0]])
    yield "fc"


_MOBILENET_BLOCKS = (1, 2, 2, 6, 2)
"""Blocks of each stage of timm's MobileNet."""


def _mobilenet() -> Names:
    yield from ("conv_stem", "bn1")
    for stage, num_blocks in enumerate(_MOBILENET_BLOCKS):
        for block in range(num_blocks):
            yield from (f"blocks.{stage}.{block}.{name}" for name in ("conv_dw", "bn1", "conv_pw", "bn2"))
    yield "classifier"


# -- Keras applications ------------------------------------------------------------------------------------------------
def _keras_resnet(depth: int) -> Names:
    yield from ("conv1_conv", "conv1_bn")
    for stage, num_blocks in enumerate(resnet.REPEATS[depth], 2):
        for block in range(1, num_blocks + 1):
            for number in (1, 2, 3, 0)[: 4 if block == 1 else 3]:
                yield from (f"conv{stage}_block{block}_{number}_{kind}" for kind in ("conv", "bn"))
    yield "predictions"


def _keras_vgg(depth: int) -> Names:
    for stage, repeats in enumerate(VGG_REPEATS[depth], 1):
        yield from (f"block{stage}_conv{number}" for number in range(1, repeats + 1))
    yield from ("fc1", "fc2", "predictions")


def _keras_densenet(depth: int) -> Names:
    yield from ("conv1_conv", "conv1_bn")
    for stage, num_layers in enumerate(densenet.REPEATS[depth], 2):
        if stage > 2:
            yield from (f"pool{stage - 1}_bn", f"pool{stage - 1}_conv")
        for layer in range(1, num_layers + 1):
            yield from (f"conv{stage}_block{layer}_{name}" for name in ("0_bn", "1_conv", "1_bn", "2_conv"))
    yield from ("bn", "predictions")


_KERAS_ORDER = {"E": (1, 4, 5, 2, 3, 6, 7, 0, 8)}
"""Of blocks that Keras builds in another order: the place of each of the zoo's layers in it."""


def _keras_inception() -> Names:
    """Keras numbers these layers as it makes them; see ``reading``, which counts them from 0."""
    count = 0
    for own in ("stem", *_INCEPTION):
        kind = own[0]
        size = 5 if own == "stem" else len(_INCEPTION_BLOCKS[kind])
        for place in range(size) if own == "stem" else _KERAS_ORDER.get(kind, range(size)):
            yield from (f"conv2d#{count + place}", f"batch_normalization#{count + place}")
        count += size
    yield "predictions"


# -- which of them a network has ---------------------------------------------------------------------------------------
def torch_names(spec: ModelSpec) -> NameMap:
    """What torchvision and timm call the layers of a network."""
    kind, depth, norm = _family(spec)
    makers: Mapping[str, Callable[[], NameMap]] = {
        "resnet": lambda: NameMap(tuple(_resnet(depth))),
        "vgg": lambda: NameMap(tuple(_vgg(depth, norm))),
        "densenet": lambda: NameMap(tuple(_densenet(depth))),
        "googlenet": lambda: NameMap(tuple(_googlenet()), 1e-3),
        "inceptionv": lambda: NameMap(
            tuple(_inception()),
            1e-3,
            ("its average pools count padding, those of this network do not: outputs differ a little at borders",),
        ),
        "mobilenetv": lambda: NameMap(tuple(_mobilenet())),
    }
    if kind == "resnet" and spec.num_parameters and _strides_in_first(spec):
        raise ModelFileError("torchvision's and timm's ResNets have their stride in the 3x3: leave version=v1 out")
    if kind == "mobilenetv" and any(node.op == "relu" for node in spec.nodes):
        raise ModelFileError("timm's MobileNet has ReLU6: give activation=relu6")
    return _made(makers, kind, spec, "torchvision or timm")


def keras_names(spec: ModelSpec) -> NameMap:
    """What Keras applications call the layers of a network."""
    kind, depth, norm = _family(spec)
    makers: Mapping[str, Callable[[], NameMap]] = {
        "densenet": lambda: NameMap(tuple(_keras_densenet(depth)), 1.001e-5),
        "inceptionv": lambda: NameMap(tuple(_keras_inception()), 1e-3),
    }
    if kind == "resnet" and depth >= resnet.BOTTLENECK_FROM:
        if not _strides_in_first(spec):
            raise ModelFileError("Keras' ResNets have their stride in the first 1x1: give version=v1")
        makers = {**makers, "resnet": lambda: NameMap(tuple(_keras_resnet(depth)), 1.001e-5)}
    if kind == "vgg" and not norm and depth in (16, 19):
        makers = {**makers, "vgg": lambda: NameMap(tuple(_keras_vgg(depth)))}
    if kind == "mobilenetv":
        raise ModelFileError("Keras' MobileNet pads at one side only, which this network does not; timm's fits")
    return _made(makers, kind, spec, "Keras applications")


def _made(makers: Mapping[str, Callable[[], NameMap]], kind: str, spec: ModelSpec, package: str) -> NameMap:
    if kind not in makers:
        known = ", ".join(sorted(makers))
        raise ModelFileError(f"weights of {package} are known for {known}, not for '{spec.name}'")
    return makers[kind]()


def _family(spec: ModelSpec) -> tuple[str, int, bool]:
    """Family, depth and whether it has batch norm where that is a choice."""
    member = zoo.describe(spec.name)
    kind = re.split(r"\d", member.name)[0]
    depth = int(member.fixed.get("depth", 0))
    known = resnet.REPEATS if kind == "resnet" else VGG_REPEATS if kind == "vgg" else None
    if known is not None and depth not in known:
        raise ModelFileError(f"no other package has '{spec.name}': give a model file of Ringlet")
    return kind, depth, bool(member.fixed.get("norm"))


def _strides_in_first(spec: ModelSpec) -> bool:
    """Whether bottlenecks have their stride in the first 1x1, as the paper."""
    strided = [node for node in spec.nodes if node.op == "conv2d" and node.attributes["stride"] == (2, 2)]
    return not any(node.attributes["kernel"] == (3, 3) for node in strided) and len(strided) > 1
