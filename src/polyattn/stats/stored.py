"""What files hold of statistics beside their arrays: sizes, counts, and powers of two."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import FileFormatError
from polyattn.files import fields
from polyattn.form.layout import Layout
from polyattn.form.stored import FORM_FIELDS, stored_layout
from polyattn.sequences import MODES

# No float64 is further from one than by this power of two.
LARGEST_EXPONENT = 1100

# Scaled tokens and targets are below 2**41, and sums of sixth degree in tokens (see scaling.py).
LARGEST_POWER = 250

COUNT = fields.integer(0)
EXPONENT = fields.nullable(fields.integer(-LARGEST_EXPONENT, LARGEST_EXPONENT))

# Attributes by what merging does: it leaves them alone, adds them up, takes the larger one, or
# finds new ones.
SHAPE = {
    "n_dims": fields.integer(1), "n_outputs": COUNT, "mode": fields.one_of(MODES),
    "bias": fields.flag,
}  # fmt: skip
ADDED = {
    "n_rows": COUNT, "n_positive": COUNT, "n_sequences": COUNT, "total_weight": fields.number(0),
}  # fmt: skip
LARGEST = {"max_length": COUNT, "max_context_length": COUNT}
UNITS = {"token_exponent": EXPONENT, "target_exponent": EXPONENT}

# Largest magnitudes; files of older releases lack them.
SIZES = dict.fromkeys(("coordinate_sizes", "output_sizes"), fields.listed(fields.number(0)))

# What was done to sums beside adding; files of sums that were only added lack them.
ROUNDINGS = {
    "down_weighted": fields.flag, "more_roundings": COUNT, "subtracted_weight": fields.number(0),
}  # fmt: skip

OPTIONAL = SIZES | ROUNDINGS | FORM_FIELDS
OPTIONAL |= {"max_context_length": COUNT, "contents": fields.any_object}
# Files of older releases lack it.
OPTIONAL |= {"min_length": COUNT}
REQUIRED = {
    key: check for key, check in (SHAPE | ADDED | LARGEST | UNITS).items() if key not in OPTIONAL
}
FIELDS = fields.entries(REQUIRED, OPTIONAL)


class OfUnits(Protocol):
    """Sums with a layout, a total weight and powers of two."""

    layout: Layout
    total_weight: float
    token_exponent: int | None
    target_exponent: int | None


def checked_layout(held: dict[str, Any]) -> tuple[Layout, float]:
    """The layout of stored statistics, and what no sum of squares can exceed."""
    FIELDS(held, "metadata")
    for name in ("n_positive", "n_sequences"):
        fits = held[name] <= held["n_rows"]
        fields.require(fits, f"metadata.{name}", "at most n_rows", held[name])
    layout = stored_layout(held)
    # Older releases knew the papers' layer alone.
    needed = [] if layout.is_plain else list(SIZES)
    needed += [] if layout.n_context_dims is None else ["max_context_length"]
    for name in needed:
        if name not in held:
            raise FileFormatError(f"metadata lacks the field {name!r}.")
    longest = max(held["max_length"], held.get("max_context_length", 0))
    return layout, held["total_weight"] * float(longest) ** 2 * 2.0**LARGEST_POWER


def stored_sizes(
    held: dict[str, Any], name: str, estimate: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The largest magnitudes of one kind; the estimate, where they are not stored."""
    sizes = np.array(held.get(name, estimate), dtype=np.float64)
    wanted = f"a list of {len(estimate)} numbers"
    fields.require(sizes.shape == estimate.shape, f"metadata.{name}", wanted, held.get(name))
    return sizes


def estimated_sizes(
    sums: OfUnits, features: NDArray[np.float64], targets: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Root mean squares of coordinates and outputs, for files that lack their sizes.

    features, targets : sums of squares (p,) and (e,), scaled
    """
    weight = sums.total_weight or 1.0
    features, targets = features / weight, targets / weight
    # (G_jj x_l)^2 has the fourth power of a token coordinate in it and the square of a query's.
    largest = float(features.max(initial=0.0)) ** (1 / 6) or 1.0
    squares = sums.layout.pairs.position.diagonal()
    of_tokens = features.reshape(-1, sums.layout.n_queries)[squares].max(axis=1)
    tokens = (of_tokens / largest**2) ** (1 / 4)
    return (
        np.ldexp(tokens, sums.token_exponent or 0),
        np.ldexp(np.sqrt(targets), sums.target_exponent or 0),
    )
