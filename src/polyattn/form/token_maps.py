"""What is seen of a token: coordinates of it, a linear map, or a function of it.

As an argument a map is None (the token itself), a list or slice of coordinates, a matrix (d, r),
or a function from tokens (n, d) to (n, r) that sees each token by itself.  A map with ``to_dict``
(those of ``pa.maps``) can be stored in files; other functions cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType, OutOfRange
from polyattn.files.fields import (
    MOST,
    any_object,
    entries,
    integer,
    listed,
    nullable,
    number,
    require,
)
from polyattn.form import maps
from polyattn.form.ready_maps import as_matrix
from polyattn.numerics.arrays import real_array
from polyattn.quoting import counted, shown

# None, coordinates as a tuple or slice, a matrix, or a function.
TokenMap: TypeAlias = Any
TokenFunction: TypeAlias = Callable[[NDArray[np.float64]], NDArray]

GOLDEN_RATIO = (1 + 5**0.5) / 2

# Numbers of functions that compute in half precision agree to this.
SAME_NUMBERS = 1e-2


def as_token_map(given: object, name: str) -> TokenMap:
    """A map as it is kept: None, a tuple of integers, a slice, a read-only matrix, a function."""
    if given is None:
        return None
    if isinstance(given, slice):
        return _checked_slice(given, name)
    if callable(given):
        return _checked_function(given, name)
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        return (int(given),)
    if isinstance(given, range):
        given = list(given)
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str | bytes):
        raise InvalidType(
            f"{name} must be coordinates (a list or slice), a matrix (d, r), or a function of "
            f"tokens; got {shown(given)}. Ready functions are in pa.maps."
        )
    array = real_array(given, name)
    if array.ndim == 1:
        return _coordinates(array, name)
    return as_matrix(array, name)


def same_map(one: TokenMap, other: TokenMap) -> bool:
    """Whether two maps are the same: matrices by their entries, functions by their equality."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        both = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
        return both and np.array_equal(one, other)
    return bool(one == other)


def coordinates_of(given: TokenMap, n_dims: int, name: str) -> tuple[int, ...] | None:
    """The coordinates that a map picks of tokens of ``n_dims``; None for any other map."""
    if given is None or isinstance(given, slice):
        chosen = tuple(range(n_dims)[slice(None) if given is None else given])
        if not chosen:
            raise InvalidInput(
                f"{name}={given} picks none of {counted(n_dims, 'coordinate')}; it must pick one "
                "at least."
            )
        return chosen
    if not isinstance(given, tuple):
        return None
    if not -n_dims <= min(given) <= max(given) < n_dims:
        raise InvalidInput(
            f"{name} must name coordinates of the tokens, from 0 to {n_dims - 1}; got "
            f"{shown(given)}."
        )
    chosen = tuple(each % n_dims for each in given)
    if len(set(chosen)) < len(chosen):
        raise InvalidInput(f"{name} names a coordinate twice: {shown(given)}.")
    return chosen


def applied(given: TokenMap, tokens: NDArray, name: str) -> NDArray[np.float64]:
    """A matrix or a function applied to tokens (n, d): what is seen of them, (n, r)."""
    if isinstance(given, np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):
            product = np.asarray(tokens.astype(np.float64, copy=False) @ given)
        if not np.isfinite(product).all():
            raise OutOfRange(
                f"the product of tokens and the matrix given as {name} is larger than float64 "
                "holds; divide one of them by a constant."
            )
        return product
    result = _called(given, tokens, name)
    finite = np.isfinite(result)
    if not finite.all():
        token = tokens[int(np.argwhere(~finite)[0, 0])]
        raise InvalidInput(
            f"the map given as {name} must return finite numbers; it made NaN or infinity of the "
            f"token {shown(token.tolist())}."
        )
    return result


def map_width(given: TokenMap, n_dims: int, name: str) -> int:
    """How many numbers a matrix or a function makes of a token.

    A function is tried on three tokens, one by one and together: what it makes of a token must
    not depend on those beside it, since tokens are read in blocks.
    """
    if isinstance(given, np.ndarray):
        if len(given) != n_dims:
            raise InvalidInput(
                f"{name} is a matrix of {len(given)} rows, but tokens have "
                f"{counted(n_dims, 'coordinate')}."
            )
        return given.shape[1]
    # Spread over (0, 1) in no order, so that nothing is a tie that rounding would decide.
    tokens = (np.arange(1.0, 3 * n_dims + 1) * GOLDEN_RATIO % 1.0).reshape(3, n_dims)
    # These tokens are not the user's: what is infinite for them may be well for others.
    with np.errstate(all="ignore"):
        alone = [_called(given, token[None], name) for token in tokens]
        together = _called(given, tokens, name)
        for one, row in zip(alone, together, strict=True):
            require_width(one.shape[1], len(row), name)
            largest = np.max(np.abs(one[np.isfinite(one)]), initial=0.0)
            if not np.allclose(one[0], row, SAME_NUMBERS, SAME_NUMBERS * largest, equal_nan=True):
                raise InvalidInput(
                    f"the map given as {name} must see each token by itself; it made other numbers "
                    "of the same token when others stood beside it, or at every call. Sums over "
                    "tokens are what attention is for; apply anything else to X before."
                )
    return together.shape[1]


def require_width(found: int, width: int, name: str) -> None:
    """Refuse a map that makes more numbers of one token than of another."""
    if found != width:
        raise InvalidInput(
            f"the map given as {name} made {counted(found, 'number')} of a token, and {width} of "
            "another; it must always make as many."
        )


def map_to_dict(given: TokenMap, name: str) -> Any:
    """A map as plain data."""
    if isinstance(given, np.ndarray):
        return {"matrix": given.tolist()}
    if isinstance(given, slice):
        return {"slice": [given.start, given.stop, given.step]}
    if isinstance(given, tuple):
        return list(given)
    if not hasattr(given, "to_dict"):
        raise InvalidInput(
            f"{name} is a function of your own, {shown(given)}, which cannot be stored in a file; "
            "use one of pa.maps, or apply it to the tokens before you fit."
        )
    return {"map": given.to_dict()}


def map_from_dict(content: Any, name: str) -> TokenMap:
    """The map that ``map_to_dict`` described; what none can be is refused."""
    if isinstance(content, list):
        listed(integer(-MOST), 1)(content, name)
        return content
    kinds = {
        "matrix": listed(listed(number(), 1), 1),
        "slice": listed(nullable(integer(-MOST)), 3, 3),
        "map": any_object,
    }
    entries({}, kinds)(content, name)
    require(len(content) == 1, name, "a matrix, a slice or a map", content)
    if "matrix" in content:
        return content["matrix"]
    if "slice" in content:
        return slice(*content["slice"])
    return maps.ready_map(content["map"], f"{name}.map")


def _checked_slice(given: slice, name: str) -> slice:
    """The slice with Python's integers; what no slice of coordinates can be is refused."""
    parts = (given.start, given.stop, given.step)
    for part in parts:
        whole = isinstance(part, int | np.integer) and not isinstance(part, bool)
        if part is not None and not whole:
            raise InvalidType(f"{name} must be a slice of integers; got {shown(given)}.")
    if given.step == 0:
        raise InvalidInput(f"{name} must be a slice whose step is not 0; got {shown(given)}.")
    return slice(*(None if part is None else int(part) for part in parts))


def _checked_function(given: TokenFunction, name: str) -> TokenFunction:
    """The function, if it is a map, and forms that hold it can be told apart."""
    if getattr(given, "__module__", "") == maps.__name__:
        maker = f"pa.maps.{getattr(given, '__name__', '')}"
        raise InvalidInput(
            f"{name} must be a map; got the function {maker}, which makes one: call it, as in "
            f"{name}={maker}(...)."
        )
    try:
        hash(given)
    except TypeError:
        raise InvalidType(
            f"{name} must be a function that can be hashed, so that forms can be compared; got "
            f"{shown(given)}, whose class defines __eq__ and not __hash__."
        ) from None
    return given


def _called(given: TokenFunction, tokens: NDArray, name: str) -> NDArray[np.float64]:
    """What a function returns for a copy of tokens (n, d): real numbers (n, r)."""
    try:
        returned = given(tokens.astype(np.float64))
    except Exception as error:
        error.add_note(f"Raised by the map given as {name}, for tokens of shape {tokens.shape}.")
        raise
    result = real_array(returned, f"what the map {name} returned")
    if result.ndim != 2 or len(result) != len(tokens) or result.shape[1] == 0:
        raise InvalidInput(
            f"the map given as {name} must turn tokens of shape {tokens.shape} into an array "
            f"({len(tokens)}, r); it returned shape {result.shape}."
        )
    return result.astype(np.float64, copy=False)


def _coordinates(array: NDArray, name: str) -> tuple[int, ...]:
    if array.dtype.kind == "b":
        raise InvalidInput(
            f"{name} must name coordinates by integers; got True and False. For those where a mask "
            "is True give numpy.flatnonzero(mask)."
        )
    if array.dtype.kind not in "iu" or array.size == 0:
        raise InvalidInput(
            f"{name} must name coordinates by integers, at least one; got {shown(array.tolist())}. "
            "A matrix has two axes, (d, r)."
        )
    chosen = tuple(int(each) for each in array)
    if len(set(chosen)) < len(chosen):
        raise InvalidInput(f"{name} names a coordinate twice: {shown(chosen)}.")
    return chosen
