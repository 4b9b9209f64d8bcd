"""Phase 6, the search in the span: values by regression, held-out examples decide [chen2024].

The paper tries all points of an epsilon-net of the m^2 coefficients.  Here a net of attention
matrices picks the starting points, some more are drawn at random, and Levenberg–Marquardt goes
from each to the nearest minimum in the span.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import Examples
from polyattn.softmax.polish import Projection, project
from polyattn.softmax.sculpting.net import best_of_net
from polyattn.softmax.sculpting.span import Span
from polyattn.softmax.sculpting.span_descent import Family, descend, fit_values
from polyattn.softmax.sculpting.views import views

Matrix = NDArray[np.float64]

# Where descent starts: so many of the best candidates of the net, so many random ones.
FROM_NET, FROM_CHANCE = 4, 4

# How much random starts stretch the base.
STRETCH = 0.3

# Rows that the search fits, and per unknown value at the least.
SEARCH_ROWS, ROWS_PER_VALUE = 1600, 4

# A held-out error below this needs no further start.
EXACT = 1e-6


@dataclass(frozen=True)
class Searched:
    """The best heads of the span.

    attn : (m, d, d);  value : (m, d, e), by regression on all examples but the held-out ones
    n_candidates : points of the net;  n_starts : descents
    fitted : relative residual on the examples of the search;  validated : on held-out ones
    best_of_net : relative residual of the best candidate of the net, before descent
    """

    attn: Matrix
    value: Matrix
    n_candidates: int
    n_starts: int
    fitted: float
    validated: float
    best_of_net: float


def search(
    fitting: Examples,
    held_out: Examples,
    span: Span,
    n_heads: int,
    rng: np.random.Generator,
    on_step: Callable[[Projection], None] | None = None,
) -> Searched:
    """Search heads A_i = G_i0 base + sum_a G_ia D_a, and choose among minima by held-out error.

    ``on_step`` hears of every start that is better than those before it; what it raises ends the
    search.
    """
    blocks = views(fitting.first(_examples_needed(fitting, n_heads)))
    family = Family(blocks, span.basis)
    test = Family(views(held_out), span.basis)
    radius = _radius(span, n_heads)
    starts, n_candidates = best_of_net(family, n_heads, radius, FROM_NET, rng)
    net_error = fit_values(family, starts[0]).error
    if n_heads > 1:
        starts += [_chance(n_heads, len(span.basis), radius, rng) for _ in range(FROM_CHANCE)]
    best, validated, tried = starts[0], np.inf, 0
    fitted = np.inf
    for start in starts:
        found = descend(family, start)
        tried += 1
        residual = test.targets - test.seen(found.G) @ found.value.reshape(-1, found.value.shape[2])
        error = float(np.linalg.norm(residual)) / test.size
        if error < validated:
            best, validated, fitted = found.G, error, found.error
            if on_step is not None:
                on_step(project(fitting, family.attn(best)))
        if validated < EXACT:
            break
    attn = family.attn(best)
    value = project(fitting, attn).value
    return Searched(attn, value, n_candidates, tried, fitted, validated, net_error)


def _examples_needed(examples: Examples, n_heads: int) -> int:
    """How many examples give SEARCH_ROWS rows, or more if there are many values to fit."""
    values = n_heads * examples.n_dims
    rows = max(SEARCH_ROWS, ROWS_PER_VALUE * values)
    return max(1, -(-rows * len(examples) // examples.n_rows))


def _radius(span: Span, n_heads: int) -> float:
    """How far from the base heads may lie: by its norm, or by the widths of K*.

    For m independent matrices of equal size the distance from their mean is sqrt(m - 1) times
    the norm of the mean.
    """
    by_norm = (1 + np.sqrt(n_heads - 1)) * float(np.linalg.norm(span.base))
    finite = [width for width in span.widths if np.isfinite(width)]
    return max(by_norm, *finite) if finite else max(by_norm, 1.0)


def _chance(n_heads: int, size: int, radius: float, rng: np.random.Generator) -> Matrix:
    """The base for every head, stretched and moved at random within the span."""
    stretched = 1 + STRETCH * rng.standard_normal((n_heads, 1))
    moved = rng.standard_normal((n_heads, size - 1)) * radius / 2
    return np.concatenate([stretched, moved], axis=1)
