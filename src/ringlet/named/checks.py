"""A request of this rank as a signature: what the others must agree with, or why it is refused."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, final

import numpy as np

from ringlet.comm import arrays
from ringlet.comm.contract import Op
from ringlet.comm.node import dtype_text
from ringlet.errors import CommunicationError
from ringlet.named.adasum import is_power_of_two
from ringlet.named.requests import Reduction, Request
from ringlet.named.signatures import Signature

MAX_REMEMBERED = 16384
"""Kinds of requests; beyond them everything is forgotten and described again."""
REDUCING = ("allreduce", "reducescatter")
OPS = {
    Reduction.SUM: Op.SUM,
    Reduction.AVERAGE: Op.AVERAGE,
    Reduction.MIN: Op.MIN,
    Reduction.MAX: Op.MAX,
    Reduction.PRODUCT: Op.PRODUCT,
}


@final
class Describer:
    """Signatures of requests to an engine of the global ``ranks``; those of usual requests are remembered."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = list(ranks)
        self._remembered: dict[Hashable, str] = {}

    def encoded(self, request: Request, stem: str, detail: tuple[int, ...] = (), refusal: str = "") -> str:
        """The signature as text; it holds a refusal if the request makes no sense or ``refusal`` says so."""
        refusal = refusal or self._objection_to_parts(request)
        facts = (
            stem, request.kind, request.op, request.prescale, request.postscale, request.root, detail, refusal,
            *[(array.dtype, array.shape) for array in request.inputs],
        )  # fmt: skip
        text = self._remembered.get(facts)
        if text is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            text = self._remembered[facts] = self._signature(request, stem, detail, refusal).encode()
        return text

    def _objection_to_parts(self, request: Request) -> str:
        """Why the parts that are not in the signature do not fit; empty if they do."""
        try:
            if request.outputs is not None:
                _check_outputs(request)
            if request.kind == "alltoall":
                for array in request.inputs:
                    arrays.check_rows(array, request.kind)
                    arrays.check_splits(len(array), request.splits, len(self._ranks))
        except CommunicationError as error:
            return str(error)
        return ""

    def _signature(self, request: Request, stem: str, detail: tuple[int, ...], refusal: str) -> Signature:
        reduces = request.kind in REDUCING
        uneven = request.kind in ("allgather", "alltoall")
        try:
            _check(request, self._ranks)
        except CommunicationError as error:
            refusal = refusal or str(error)
        return Signature(
            stem,
            request.kind,
            tuple((dtype_text(array.dtype), array.shape[1:] if uneven else array.shape) for array in request.inputs),
            request.op if reduces else Reduction.SUM,
            float(request.prescale) if reduces else 1.0,
            float(request.postscale) if reduces else 1.0,
            request.root if request.kind == "broadcast" else 0,
            detail,
            refusal,
        )


def _check(request: Request, ranks: Sequence[int]) -> None:
    """Raise if this rank's arguments alone make no sense."""
    kind = request.kind
    for array in request.inputs:
        if kind in REDUCING:
            _check_reduction(request, array.dtype, len(ranks))
        else:
            arrays.check_movable(array.dtype)
        if kind in ("allgather", "alltoall", "reducescatter"):
            arrays.check_rows(array, kind)
    if kind == "broadcast" and request.root not in ranks:
        raise CommunicationError(f"root {request.root} is not in the process set: expected one of {list(ranks)}")


def _check_reduction(request: Request, dtype: np.dtype[Any], size: int) -> None:
    op = request.op
    arrays.check_reduction(dtype, Op.SUM)
    if not (math.isfinite(request.prescale) and math.isfinite(request.postscale)):
        raise CommunicationError(f"scales {request.prescale} and {request.postscale}: expected finite numbers")
    scaled = (request.prescale, request.postscale) != (1.0, 1.0)
    if dtype.kind == "b" and (scaled or op is Reduction.AVERAGE):
        raise CommunicationError("booleans have no average and no scale: expected op sum (or), min, max or product")
    if op is not Reduction.ADASUM:
        return
    if request.kind == "reducescatter":
        raise CommunicationError("Adasum needs whole arrays: expected another op for reducescatter")
    if dtype.kind != "f" and not arrays.is_half(dtype):
        raise CommunicationError(f"Adasum of dtype {dtype.name}: expected a floating dtype")
    if not is_power_of_two(size):
        raise CommunicationError(f"Adasum among {size} ranks: expected a power of two, as ranks are combined in pairs")


def _check_outputs(request: Request) -> None:
    outputs = request.outputs or ()
    if request.kind not in ("allreduce", "broadcast") or len(outputs) != len(request.inputs):
        raise CommunicationError(
            f"{len(outputs)} outputs for {len(request.inputs)} inputs of {request.kind}: expected one each, and only "
            "for allreduce and broadcast"
        )
    for array, out in zip(request.inputs, outputs, strict=True):
        if out is array and array.flags.writeable:
            continue
        arrays.result_array(array, out)
