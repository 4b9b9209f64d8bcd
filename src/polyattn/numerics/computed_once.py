"""Properties that are computed on first use, by one thread only."""

from __future__ import annotations

import os
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar

Value = TypeVar("Value")

# Locks of the values that are being computed: by process (a fork must not inherit a lock that
# another thread holds), object and name.  Objects carry none, so they can be copied and sent.
_locks: dict[tuple[int, int, str], RLock] = {}


class computed_once(cached_property[Value]):  # noqa: N801 (used like cached_property)
    """``cached_property`` for objects that threads share: all of them get the same value.

    The first thread computes while others that want the same value wait for it.  If it fails,
    the next one tries.
    """

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        values, name = vars(instance), str(self.attrname)
        if name not in values:
            key = (os.getpid(), id(instance), name)
            with _locks.setdefault(key, RLock()):
                if name not in values:
                    values[name] = self.func(instance)
            # Whoever comes now finds the value.
            _locks.pop(key, None)
        return values[name]
