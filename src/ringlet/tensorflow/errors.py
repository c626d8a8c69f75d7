"""Errors of collectives as TensorFlow's kinds: programs catch ``tf.errors``, as Horovod's operations raise them.

Eager calls raise these. Inside a graph TensorFlow makes its own errors of what a function of Python raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from ringlet.named import ArgumentsError, CollectiveError, DisagreementError


class FailedPreconditionError(DisagreementError, tf.errors.FailedPreconditionError):
    """Ranks' requests do not fit together."""

    def __init__(self, message: str) -> None:
        tf.errors.FailedPreconditionError.__init__(self, None, None, message)


class InvalidArgumentError(ArgumentsError, tf.errors.InvalidArgumentError):
    """Arguments of a rank that make no sense."""

    def __init__(self, message: str) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, message)


class UnknownError(CollectiveError, tf.errors.UnknownError):
    """A collective that failed; it may work when it is repeated."""

    def __init__(self, message: str) -> None:
        tf.errors.UnknownError.__init__(self, None, None, message)


@contextmanager
def translated() -> Iterator[None]:
    """Errors of collectives are also TensorFlow's."""
    try:
        yield
    except tf.errors.OpError:
        raise
    except DisagreementError as error:
        raise FailedPreconditionError(str(error)) from error
    except ArgumentsError as error:
        raise InvalidArgumentError(str(error)) from error
    except CollectiveError as error:
        raise UnknownError(str(error)) from error
