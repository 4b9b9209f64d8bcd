"""One-hot tokens that are kept as the numbers of their symbols, and become dense when read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from polyattn.errors import InvalidInput, InvalidType, require_integer

# More numbers than this (of a byte each) are not made dense together.
MOST_DENSE = 1 << 28


class OneHotTokens:
    """Tokens (n_tokens, n_symbols) of which token t is 1 at ``ids[t]`` and 0 elsewhere.

    It stands where an array of tokens does: it has a shape and a dtype (int8), and what is sliced
    or indexed comes as an array.  ``between`` and ``chosen`` stay numbers of symbols.

    Cost: the memory of ``ids``; n_symbols bytes for each token that is read.
    """

    dtype = np.dtype(np.int8)
    ndim = 2
    is_whole = True  # ``magnitudes`` are those of just these tokens

    def __init__(self, ids: NDArray[np.integer], n_symbols: int) -> None:
        self.ids, self.n_symbols = ids, n_symbols

    @classmethod
    def checked(cls, ids: ArrayLike, n_symbols: object, name: str = "ids") -> OneHotTokens:
        """From integers (n_tokens,) of 0 .. n_symbols - 1; read-only, of the smallest type."""
        count = require_integer("n_symbols", n_symbols, 1)
        numbers = as_ids(ids, name)
        if numbers.ndim != 1:
            raise InvalidInput(f"{name} must be one-dimensional; got shape {numbers.shape}.")
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= count):
            at = int(np.argmax((numbers < 0) | (numbers >= count)))
            raise InvalidInput(
                f"{name} must lie between 0 and {count - 1}, as n_symbols={count} says; got "
                f"{numbers[at]} as token {at}."
            )
        kept = numbers.astype(np.min_scalar_type(count - 1))
        kept.setflags(write=False)
        return cls(kept, count)

    @property
    def shape(self) -> tuple[int, int]:
        """(n_tokens, n_symbols)."""
        return len(self.ids), self.n_symbols

    @property
    def size(self) -> int:
        """How many numbers it stands for."""
        return len(self.ids) * self.n_symbols

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return int(self.ids.nbytes)

    @property
    def magnitudes(self) -> NDArray[np.float64]:
        """1 for each symbol that occurs, else 0, (n_symbols,)."""
        return (np.bincount(self.ids, minlength=self.n_symbols) > 0).astype(np.float64)

    def __len__(self) -> int:
        return len(self.ids)

    def between(self, first: int, stop: int) -> OneHotTokens:
        """Tokens first..stop, still as numbers of symbols; a view."""
        return OneHotTokens(self.ids[first:stop], self.n_symbols)

    def chosen(self, which: NDArray[np.integer]) -> OneHotTokens:
        """The tokens with these numbers, still as numbers of symbols."""
        return OneHotTokens(self.ids[which], self.n_symbols)

    def max(self) -> int:
        """The largest number."""
        return 1

    def min(self) -> int:
        """The smallest number."""
        return int(self.n_symbols == 1)

    def __getitem__(self, index: Any) -> NDArray[np.int8]:
        """The tokens of a slice or an array of numbers, dense; or [tokens, coordinates] of them."""
        if isinstance(index, tuple):
            tokens, coordinates = index
            if isinstance(coordinates, int | np.integer):
                column = range(self.n_symbols)[int(coordinates)]
                return (self.ids[tokens] == column).astype(np.int8)
            return self[tokens][..., coordinates]
        return self._dense(self.ids[index])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray:
        if copy is False:
            raise ValueError("one-hot tokens become an array only as a copy.")
        return self._dense(self.ids).astype(self.dtype if dtype is None else dtype, copy=False)

    def __repr__(self) -> str:
        return f"OneHotTokens({len(self.ids)} tokens of {self.n_symbols} symbols)"

    def _dense(self, ids: NDArray) -> NDArray[np.int8]:
        count = ids.size * self.n_symbols
        if count > MOST_DENSE:
            raise InvalidInput(
                f"{ids.size:,} one-hot tokens of {self.n_symbols:,} symbols would be {count:,} "
                "numbers; this computation needs them as a dense array. Read fewer tokens at a "
                "time: batch[i] is one sequence, batch[i:j] are some."
            )
        dense = np.zeros((*ids.shape, self.n_symbols), dtype=np.int8)
        np.put_along_axis(dense, ids[..., None].astype(np.intp), 1, axis=-1)
        return dense


def as_ids(ids: ArrayLike, name: str) -> NDArray[np.integer]:
    """An array of integers, or a refusal that says what came."""
    try:
        array = np.asarray(ids)
    except ValueError:
        raise InvalidInput(
            f"{name} is not a rectangular array; give sequences of unequal length as a list of "
            "arrays, or as (flat ids, offsets)."
        ) from None
    if not array.size:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InvalidType(
            f"{name} must hold integers, the numbers of symbols; got dtype {array.dtype}."
        )
    return array
