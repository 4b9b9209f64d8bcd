"""Ready maps of tokens, for ``query``, ``key`` and ``value`` of a form.

A map is called with tokens (..., d) and returns what is seen of them, (..., r).  It never changes,
equals every map of the same content, and stands in files by that content.  None is learned.

>>> import numpy as np
>>> from polyattn.form import maps
>>> maps.polynomial(2)(np.array([[2.0, 3.0]]))
array([[1., 2., 3., 4., 6., 9.]])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from polyattn.errors import (
    FileFormatError,
    InvalidInput,
    InvalidType,
    require_flag,
    require_integer,
    require_number,
)
from polyattn.files.fields import (
    Check,
    any_object,
    entries,
    flag,
    integer,
    listed,
    nullable,
    number,
    one_of,
    text,
)
from polyattn.form.ready_maps import (
    MOST_NUMBERS,
    Elu1,
    Hedgehog,
    Normalised,
    Polynomial,
    RandomFourier,
    ReadyMap,
    as_matrix,
)
from polyattn.numerics.random_state import RandomState, require_seed

__all__ = ["ReadyMap", "elu1", "hedgehog", "normalised", "polynomial", "random_fourier"]

# No polynomial has a higher degree.
MOST_DEGREE = 100


def polynomial(degree: int, include_lower: bool = True) -> ReadyMap:
    """All monomials of the coordinates up to a degree, the constant 1 included.

    They come by degree, and x_i x_j ... with i <= j <= ... in the order of their indices: for two
    coordinates and degree 2 these are 1, x_0, x_1, x_0^2, x_0 x_1, x_1^2.

    degree : from 1 to 100
    include_lower : False for the monomials of exactly this degree

    With the constant 1 among them, ``bias`` of a form only adds what is there already.
    """
    checked = require_integer("degree", degree, 1)
    if checked > MOST_DEGREE:
        raise InvalidInput(f"degree must be at most {MOST_DEGREE}; got {checked}.")
    return Polynomial(checked, require_flag("include_lower", include_lower))


def elu1() -> ReadyMap:
    """elu(x) + 1 of each coordinate: x + 1 above zero, exp(x) below.

    From Katharopoulos et al. 2020, arXiv 2006.16236.
    """
    return Elu1()


def random_fourier(n_features: int, scale: float, random_state: RandomState = 0) -> ReadyMap:
    """Random waves: the n numbers sqrt(2/n) cos(w_i^T x / scale + b_i).

    The inner product of two tokens that are seen so is exp(-||x - y||^2 / (2 scale^2)) on average,
    with an error of about 1/sqrt(n) (Rahimi and Recht 2007).  Frequencies w_i are standard normal
    and phases b_i uniform, drawn once for each number of coordinates.

    n_features : n, how many waves; for tokens of d coordinates n d is at most 2^25
    scale : the distance beyond which tokens look different, above 0
    random_state : a seed, which is kept; the same one gives the same waves
    """
    checked = require_integer("n_features", n_features, 1)
    if checked > MOST_NUMBERS:
        raise InvalidInput(f"n_features must be at most {MOST_NUMBERS:,}; got {checked:,}.")
    distance = require_number("scale", scale)
    if distance == 0.0:
        raise InvalidInput("scale must be above 0, the distance of tokens that differ; got 0.")
    return RandomFourier(checked, distance, require_seed(random_state))


def hedgehog(weights: ArrayLike | None = None) -> ReadyMap:
    """[exp(x W), exp(-x W)] divided by the sum of them all: softmax of [x W, -x W].

    The map of Zhang et al. 2024, arXiv 2402.04347, without a bias, in its normalised variant.  The
    authors' code divides each half by its own sum; then both halves add up to 1, and no data could
    tell layers apart that differ by this.  Here one sum divides both.  All numbers still add up
    to 1, the constant that ``bias`` of a form would add.

    weights : W (d, r), the trained weights of a head; None for the identity, with which the
        paper's training begins
    """
    return Hedgehog(None if weights is None else as_matrix(weights, "weights"))


def normalised() -> ReadyMap:
    """A token divided by its norm; the zero token stays zero."""
    return Normalised()


def ready_map(content: Any, name: str) -> ReadyMap:
    """The map that ``ReadyMap.to_dict`` described; ``name`` is the place of it in a file.

    Raises FileFormatError for whatever no map wrote.
    """
    any_object(content, name)
    one_of(tuple(_KINDS))(content.get("name"), f"{name}.name")
    make, checks = _KINDS[content["name"]]
    entries({"name": text(), **checks})(content, name)
    try:
        return make(**{argument: content[argument] for argument in checks})
    except (InvalidInput, InvalidType) as error:
        raise FileFormatError(f"{name}: {error}") from None


# What makes a map, and what its arguments are in a file.
_KINDS: dict[str, tuple[Callable[..., ReadyMap], dict[str, Check]]] = {
    "polynomial": (polynomial, {"degree": integer(1, MOST_DEGREE), "include_lower": flag}),
    "elu1": (elu1, {}),
    "random_fourier": (
        random_fourier,
        {
            "n_features": integer(1, MOST_NUMBERS),
            "scale": number(0),
            "random_state": integer(0, None),
        },
    ),
    "hedgehog": (hedgehog, {"weights": nullable(listed(listed(number(), 1), 1))}),
    "normalised": (normalised, {}),
}
