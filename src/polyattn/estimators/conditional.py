"""Methods that only some settings of an estimator have, and a sentence where they are missing."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any


class Provided:
    """A method that is an attribute of those instances only for which ``check`` raises nothing.

    scikit-learn finds out by ``hasattr`` what an estimator can do.  Its own ``available_if`` says
    "has no attribute" whatever the reason is; here the AttributeError is that of ``check``.
    """

    def __init__(self, method: Callable[..., Any], check: Callable[[Any], None]) -> None:
        self.method, self.check = method, check
        self.__doc__ = method.__doc__

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Any]:
        if instance is None:
            return self.method
        self.check(instance)
        return MethodType(self.method, instance)


def provided(check: Callable[[Any], None]) -> Callable[[Callable[..., Any]], Provided]:
    """A decorator of methods: ``check(instance)`` raises AttributeError where it has none."""
    return lambda method: Provided(method, check)
