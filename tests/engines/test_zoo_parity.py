"""Every family of the zoo has PyTorch's loss, gradients, running statistics and predictions."""

from __future__ import annotations

import pytest

from ringlet.models import zoo

SMALL = [
    ("simplemlp", 28, {"hidden": (32, 16)}),
    ("simplecnn", 28, {}),
    ("mnistcnn", 10, {}),
    ("alexnet", 67, {"form": "imagenet", "hidden": (64, 32)}),
    ("alexnet_cifar10", 16, {"hidden": (64, 32)}),
    ("vgg1", 8, {}),
    ("vgg2bn", 8, {}),
    ("vgg3do", 8, {}),
    ("vgg3dobn", 8, {}),
    ("resnet20", 8, {"width": 4}),
    ("resnet18", 33, {"width": 4, "form": "imagenet"}),
    ("resnet50", 8, {"width": 4, "form": "cifar"}),
    ("resnet50", 33, {"width": 4, "form": "imagenet", "version": "v1"}),
    ("mobilenetv1", 32, {"width": 0.125}),
    ("unet", 16, {"levels": 3, "width": 4}),
    ("unet", 23, {"levels": 3, "width": 4}),
]
LARGE = [
    ("vgg11", 32, {"form": "imagenet", "hidden": (32,)}),
    ("vgg16_bn", 32, {}),
    ("googlenet", 33, {}),
    ("inceptionv3", 75, {"form": "imagenet"}),
    ("densenet121", 33, {"growth": 8, "form": "imagenet"}),
    ("densenet121", 8, {"growth": 8, "form": "cifar"}),
]


def create(name, size, options):
    channels = zoo.describe(name).input_shape[0]
    classes = None if name == "unet" else 10
    return zoo.create(name, input_shape=(channels, size, size), num_classes=classes, **options)


def identify(case):
    name, size, options = case
    return "-".join((name, str(size), *(str(value) for value in options.values() if isinstance(value, str))))


def loss_for(name):
    return "binary_cross_entropy" if name == "unet" else "categorical_cross_entropy"


@pytest.mark.parametrize("case", SMALL, ids=identify)
def test_small_network_equals_pytorch(case, kernels, assert_parity):
    assert_parity(create(*case), kernels, count=3, loss=loss_for(case[0]), tolerance=1e-8)


@pytest.mark.parametrize("case", LARGE, ids=identify)
def test_large_network_equals_pytorch(case, kernels, assert_parity):
    assert_parity(create(*case), kernels, count=2, tolerance=1e-7)


def test_unet_learns_dice_as_pytorch_does(kernels, assert_parity):
    assert_parity(create("unet", 16, {"levels": 2, "width": 4}), kernels, count=3, loss="dice")
