"""Operations that join or reshape values: mostly free."""

from __future__ import annotations

import math

from ringlet.engines.native.emission import Emitter
from ringlet.engines.native.operations.base import Needs, Operation, View, emit_views


class Flatten(Operation):
    """The same bytes with one feature axis."""

    def needs(self) -> Needs:
        """Nothing."""
        return Needs()

    def views(self) -> tuple[View, ...]:
        """The input itself."""
        return ((self.inputs[0], 0),)

    def forward(self, emit: Emitter) -> None:
        """Nothing, as a rule."""
        emit_views(self, emit)

    def backward(self, emit: Emitter) -> None:
        """Nothing, if it is the input's only consumer."""
        emit.contribute(self.inputs[0], emit.gradient(self.output).reshape(self.shapes[self.inputs[0]]))


class Concat(Operation):
    """Channels side by side: producers write straight into their part."""

    def needs(self) -> Needs:
        """Nothing."""
        return Needs()

    def views(self) -> tuple[View, ...]:
        """Every input, one after the other."""
        views, start = [], 0
        for name in self.inputs:
            views.append((name, start))
            start += math.prod(self.shapes[name])
        return tuple(views)

    def forward(self, emit: Emitter) -> None:
        """Copies of inputs that lie elsewhere."""
        emit_views(self, emit)

    def backward(self, emit: Emitter) -> None:
        """Each input gets its part of the gradient."""
        gradient = emit.gradient(self.output)
        for name, offset in self.views():
            part = gradient.slice_of(offset * gradient.dtype.itemsize, self.shapes[name])
            emit.contribute(name, part)


class Add(Operation):
    """The sum of two or more values."""

    def needs(self) -> Needs:
        """Nothing; a sum of two may overwrite one (of more it might overwrite a term that is still to be added)."""
        return Needs(overwritable=self.inputs if len(self.inputs) == 2 else ())

    def views(self) -> tuple[View, ...]:
        """None."""
        return ()

    def forward(self, emit: Emitter) -> None:
        """One call per further input."""
        y = emit.values[self.output]
        first, *others = (emit.values[name] for name in self.inputs)
        for term in others:
            emit.call("add", first, term, y)
            first = y

    def backward(self, emit: Emitter) -> None:
        """Every input gets the output's gradient."""
        gradient = emit.gradient(self.output)
        for name in self.inputs:
            emit.contribute(name, gradient)
