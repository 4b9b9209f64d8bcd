"""Names of sequences, remembered so that a sequence in two parts is noticed, in little memory.

Numbers that only grow need no more than the last one.  Names in any other order are kept as 64
bits each: integers as they are, others as a hash.  Up to MOST_KEPT names are kept in any case, so
that files whose numbers go up, and then begin anew in between, are still told apart.
"""

from __future__ import annotations

import hashlib
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.files import fields
from polyattn.quoting import shown

# So many names (32 MB) are kept also where they grow.
MOST_KEPT = 1 << 22

# Numbers beyond, and infinity, are names as texts are.
LARGEST_NUMBER = 2.0**64

NUMBER = fields.nullable(fields.number(-LARGEST_NUMBER, LARGEST_NUMBER))
FIELDS = fields.entries({"first": NUMBER, "last": NUMBER, "floor": NUMBER, "grows": fields.flag})


class SequenceNames:
    """The names of all sequences so far.

    first, last : the ends of names that grow from chunk to chunk (``grows``)
    floor : names up to this one are not kept any more; they grew
    """

    def __init__(self) -> None:
        self.first: float | None = None
        self.last: float | None = None
        self.floor: float | None = None
        self.grows = True
        # Sorted arrays of which each is more than twice as long as the next.
        self._keys: list[NDArray[np.uint64]] = []

    def add(self, names: NDArray | None) -> None:
        """Add the names of a chunk; refused where one of them was there before."""
        if names is None or len(names) == 0:
            return
        names = np.asarray(names)
        keys, numbers = _keys(names), _numbers(names)
        grows = numbers is not None and bool(np.all(numbers[1:] > numbers[:-1]))
        if numbers is not None and self.grows and grows and self._is_later(numbers[0].item()):
            self.first = numbers[0].item() if self.first is None else self.first
            self.last = numbers[-1].item()
            self._keep(np.sort(keys))
            return
        self.grows = False
        self._require_known(names, numbers)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        again = np.zeros(len(keys), dtype=bool)
        again[1:] = ordered[1:] == ordered[:-1]
        for known in self._keys:
            at = np.minimum(np.searchsorted(known, ordered), len(known) - 1)
            again |= known[at] == ordered
        if again.any():
            raise _twice(f"the sequence {_quoted(names, order[int(np.argmax(again))])}")
        self._keep(ordered)

    def absorb(self, later: SequenceNames) -> None:
        """Add the names of chunks behind these, which were collected apart."""
        if later.first is None and not later._keys:
            return
        in_order = later.first is not None and self._is_later(later.first)
        if self.grows and later.grows and in_order:
            self.first = later.first if self.first is None else self.first
            self.last = later.last
            if later.floor is not None:
                self.floor, self._keys = later.floor, []
        else:
            if self.floor is not None or later.floor is not None:
                raise _unknown("some sequences", self.last)
            self.grows = False
            for one in later._keys:
                for other in self._keys:
                    if np.isin(one, other, assume_unique=True).any():
                        raise _twice("a sequence")
        for keys in later._keys:
            self._keep(keys)

    def arrays(self) -> dict[str, NDArray]:
        """The kept names as one array, for a file."""
        kept = np.sort(np.concatenate(self._keys)) if self._keys else np.empty(0, np.uint64)
        return {"names": kept.view(np.int64)}

    def metadata(self) -> dict[str, Any]:
        """Everything else as plain data."""
        return {
            "first": self.first, "last": self.last, "floor": self.floor, "grows": self.grows,
        }  # fmt: skip

    @classmethod
    def restored(cls, held: Any, names: NDArray, where: str = "names") -> Self:
        """The inverse of ``metadata`` and ``arrays``."""
        FIELDS(held, where)
        fields.array((None,), dtype="int64")(names, f"arrays.{where}")
        made = cls()
        for key, value in held.items():
            setattr(made, key, value)
        if len(names):
            made._keys = [np.sort(names.view(np.uint64))]
        return made

    def _is_later(self, first: float) -> bool:
        return self.last is None or first > self.last

    def _keep(self, ordered: NDArray[np.uint64]) -> None:
        self._keys.append(ordered)
        while len(self._keys) > 1 and len(self._keys[-2]) <= 2 * len(self._keys[-1]):
            self._keys[-2:] = [np.sort(np.concatenate(self._keys[-2:]))]
        if self.grows and sum(map(len, self._keys)) > MOST_KEPT:
            self.floor, self._keys = self.last, []

    def _require_known(self, names: NDArray, numbers: NDArray | None) -> None:
        if self.floor is None:
            return
        below = np.ones(len(names), bool) if numbers is None else numbers <= self.floor
        if below.any():
            raise _unknown(f"the sequence {_quoted(names, int(np.argmax(below)))}", self.floor)


def _quoted(names: NDArray, at: int) -> str:
    return shown(names[at : at + 1].tolist()[0])


def _twice(what: str) -> InvalidInput:
    return InvalidInput(
        f"{what} is there twice, in different places: its parts would be taken for two sequences. "
        "Sort the data by sequence, or give sequences names of their own; pa.from_long takes the "
        "rows of a frame in memory in any order."
    )


def _unknown(what: str, floor: object) -> InvalidInput:
    return InvalidInput(
        f"the names of sequences grew up to {floor}, and then {what} came below that: whether it "
        "was there before is not known. Sort the data by sequence."
    )


def _numbers(names: NDArray) -> NDArray | None:
    """Names that can be compared, and that a file can hold, or None."""
    if names.dtype.kind == "f" and not np.all(np.abs(names) <= LARGEST_NUMBER):
        return None
    return names if names.dtype.kind in "iuf" else None


def _keys(names: NDArray) -> NDArray[np.uint64]:
    """64 bits for each name: whole numbers as they are, whatever their type; else a hash."""
    if names.dtype.kind in "iu":
        return names.astype(np.int64 if names.dtype.kind == "i" else np.uint64).view(np.uint64)
    return np.array([_key(each) for each in names.tolist()], dtype=np.uint64)


def _key(name: object) -> int:
    whole = name if isinstance(name, int) else None
    if isinstance(name, float) and name.is_integer():
        whole = int(name)
    if whole is not None and -(2**63) <= whole < 2**64:
        return whole % 2**64
    return int.from_bytes(hashlib.blake2b(repr(name).encode(), digest_size=8).digest(), "little")
