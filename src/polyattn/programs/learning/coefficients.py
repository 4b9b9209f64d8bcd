"""Coefficients that are not read as a program: as terms without variables, and as a layer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.features.pairs import n_pairs, pair_position
from polyattn.heads.compress import factor
from polyattn.model import LinearAttention
from polyattn.programs.language.patterns import Pattern
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.terms import Term


def constant_terms(
    schema: Schema, places: NDArray[np.int64], values: NDArray[np.float64]
) -> list[Term]:
    """One term for each coefficient, the largest first.

    places : array (4, n), the coordinates a, j, k, l of each; values : array (n,)
    """
    order = np.argsort(-np.abs(values), kind="stable")
    patterns = [_pattern(schema, at) for at in range(schema.n_dims)]
    return [
        Term(patterns[a], patterns[j], patterns[k], patterns[last], value)
        for (a, j, k, last), value in zip(
            places[:, order].T.tolist(), values[order].tolist(), strict=True
        )
    ]


def layer_of(
    n_dims: int, places: NDArray[np.int64], values: NDArray[np.float64]
) -> LinearAttention:
    """The layer of these coefficients of G[j, k] x[l], j <= k.  Cost: O(d^6) time."""
    coef = np.zeros((n_dims, n_pairs(n_dims), n_dims))
    a, j, k, last = places
    coef[a, pair_position(n_dims)[j, k], last] = values
    heads = factor(coef)
    return LinearAttention(heads.attn, heads.value)


def _pattern(schema: Schema, coordinate: int) -> Pattern:
    name, value = schema.atoms[coordinate]
    attribute = getattr(schema, name)
    return Pattern(attribute, whole=value) if isinstance(value, str) else attribute(*value)
