"""Random changes of training images, each a pure function of (seed, epoch, sample index).

So a sample looks the same in a given epoch whichever rank reads it, in whichever batch and thread. Masks go through the
same geometry as their images. Validation and test loaders are given no augmentation.

``base`` says what a change is, ``geometry`` moves pixels (by a ``warp``), ``light`` changes their values, ``mixing``
joins pairs of samples.
"""

from __future__ import annotations

from ringlet.data.augmentation.base import AUGMENTATIONS, Augmentation, Change, Draw, Images, Mixture, Pool, Transform
from ringlet.data.augmentation.geometry import Crop, Flip, ResizedCrop, Rotate, Shift, VerticalFlip, Zoom
from ringlet.data.augmentation.light import Blur, Colour, Erase, Jitter
from ringlet.data.augmentation.mixing import CutMix, MixUp
from ringlet.data.augmentation.warp import Warp, rotation

__all__ = [
    "AUGMENTATIONS",
    "Augmentation",
    "Blur",
    "Change",
    "Colour",
    "Crop",
    "CutMix",
    "Draw",
    "Erase",
    "Flip",
    "Images",
    "Jitter",
    "MixUp",
    "Mixture",
    "Pool",
    "ResizedCrop",
    "Rotate",
    "Shift",
    "Transform",
    "VerticalFlip",
    "Warp",
    "Zoom",
    "rotation",
]
