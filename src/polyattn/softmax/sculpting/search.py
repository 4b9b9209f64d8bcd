"""Phase 6, the search in the span: values by regression, held-out examples decide [chen2024].

The paper tries all points of an epsilon-net of the m^2 coefficients.  Here a net of attention
matrices picks the starting points, some more are drawn at random, and Levenberg–Marquardt goes
from each to the nearest minimum in the span.

A point t of the net is the attention matrix base + sum_a t_a D_a.  Its features F_t = p_t X do
not depend on the other heads, so the products F_s^T F_t and F_t^T Y of all points are made once,
and a candidate, m points, costs one (m d) x (m d) system, however many examples there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import Examples
from polyattn.softmax.polish import Projection, project
from polyattn.softmax.recorder import Note
from polyattn.softmax.sculpting.rows import views
from polyattn.softmax.sculpting.span import HeadSpan
from polyattn.softmax.sculpting.span_descent import SpanFamily, descend, fit_values

Matrix = NDArray[np.float64]

# Where descent starts: so many of the best candidates of the net, so many random ones.
FROM_NET, FROM_RANDOM = 4, 4

# How much random starts stretch the base.
STRETCH = 0.3

# Rows that the search fits, and per unknown value at the least.
SEARCH_ROWS, ROWS_PER_VALUE = 1600, 4

# A held-out error below this needs no further start.
EXACT = 1e-6

# Points on one axis of the net, points in all, and candidates.
POINTS_PER_AXIS, MOST_POINTS, MOST_CANDIDATES = 33, 64, 4096

# Candidates that are solved at once.
BATCH = 512

# Keeps systems of nearly equal heads solvable, relative to their trace.
RIDGE = 1e-9


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

    def record(self, note: Note) -> None:
        """What phase 6 did."""
        note.say(
            f"{self.n_candidates} points of the net and {self.n_starts} descents; held-out error "
            f"{self.validated:.2g} in the span.",
            candidates=self.n_candidates,
            starts=self.n_starts,
            best_of_net=self.best_of_net,
            fitted=self.fitted,
            validated=self.validated,
        )


def search(
    fitting: Examples,
    held_out: Examples,
    span: HeadSpan,
    n_heads: int,
    rng: np.random.Generator,
    on_step: Callable[[Projection], None] | None = None,
) -> Searched:
    """Search heads A_i = G_i0 base + sum_a G_ia D_a, and choose among minima by held-out error.

    ``on_step`` is called with every start that is better than those before it; what it raises
    ends the search.
    """
    blocks = views(fitting.first(_examples_needed(fitting, n_heads)))
    family = SpanFamily(blocks, span.basis)
    test = SpanFamily(views(held_out), span.basis)
    radius = _radius(span, n_heads)
    starts, n_candidates = best_of_net(family, n_heads, radius, FROM_NET, rng)
    net_error = fit_values(family, starts[0]).error
    if n_heads > 1:
        starts += [_random_start(n_heads, len(span.basis), radius, rng) for _ in range(FROM_RANDOM)]
    best: Projection | None = None
    validated, fitted, tried = np.inf, np.inf, 0
    for start in starts:
        found = descend(family, start)
        tried += 1
        residual = test.targets - test.seen(found.G) @ found.value.reshape(-1, found.value.shape[2])
        error = float(np.linalg.norm(residual)) / test.size
        if error < validated:
            best = project(fitting, family.attn(found.G))
            validated, fitted = error, found.error
            if on_step is not None:
                on_step(best)
        if validated < EXACT:
            break
    best = best or project(fitting, family.attn(starts[0]))
    return Searched(best.attn, best.value, n_candidates, tried, fitted, validated, net_error)


def _examples_needed(examples: Examples, n_heads: int) -> int:
    """How many examples give SEARCH_ROWS rows, or more if there are many values to fit."""
    values = n_heads * examples.n_dims
    rows = max(SEARCH_ROWS, ROWS_PER_VALUE * values)
    return max(1, -(-rows * len(examples) // examples.n_rows))


def _radius(span: HeadSpan, n_heads: int) -> float:
    """How far from the base heads may lie: by its norm, or by the widths of K*.

    For m independent matrices of equal size the distance from their mean is sqrt(m - 1) times
    the norm of the mean.
    """
    by_norm = (1 + np.sqrt(n_heads - 1)) * float(np.linalg.norm(span.base))
    finite = [width for width in span.widths if np.isfinite(width)]
    return max(by_norm, *finite) if finite else max(by_norm, 1.0)


def _random_start(n_heads: int, size: int, radius: float, rng: np.random.Generator) -> Matrix:
    """The base for every head, stretched and moved at random within the span."""
    stretched = 1 + STRETCH * rng.standard_normal((n_heads, 1))
    moved = rng.standard_normal((n_heads, size - 1)) * radius / 2
    return np.concatenate([stretched, moved], axis=1)


def best_of_net(
    family: SpanFamily, n_heads: int, radius: float, count: int, rng: np.random.Generator
) -> tuple[list[Matrix], int]:
    """Coefficients (m, m') of the ``count`` best candidates, best first, and how many were tried.

    Within |t| <= ``radius`` the net is a grid for one or two directions and random points for
    more; all choices of m points are tried, or MOST_CANDIDATES of them drawn at random.

    Guarantee: for m = 2 the best pair up to the spacing of the net, radius / 16.
    Cost: rows (points d)^2 + candidates (m d)^3.
    """
    points = _points(family.basis.shape[0] - 1, radius, rng)
    coefficients = np.concatenate([np.ones((len(points), 1)), points], axis=1)
    chosen = _choices(len(points), n_heads, rng)
    gram, moment = _products(family, coefficients)
    explained = np.concatenate(
        [
            _explained(gram, moment, chosen[first : first + BATCH])
            for first in range(0, len(chosen), BATCH)
        ]
    )
    order = np.argsort(-explained, kind="stable")[:count]
    return [coefficients[chosen[index]] for index in order], len(chosen)


def _points(n_directions: int, radius: float, rng: np.random.Generator) -> Matrix:
    if n_directions == 0:
        return np.zeros((1, 0))
    if n_directions <= 2:
        per_axis = POINTS_PER_AXIS if n_directions == 1 else int(np.sqrt(MOST_POINTS))
        ticks = np.linspace(-radius, radius, per_axis)
        return np.stack(np.meshgrid(*[ticks] * n_directions), axis=-1).reshape(-1, n_directions)
    return rng.uniform(-radius, radius, (MOST_POINTS, n_directions))


def _choices(n_points: int, n_heads: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Different points for all heads, shape (candidates, m); if there are too few, any points."""
    if n_points < n_heads:
        return rng.integers(0, n_points, (BATCH, n_heads))
    if comb(n_points, n_heads) <= MOST_CANDIDATES:
        return np.array(list(combinations(range(n_points), n_heads)), dtype=np.intp)
    keys = rng.random((MOST_CANDIDATES, n_points))
    return np.sort(np.argpartition(keys, n_heads - 1, axis=1)[:, :n_heads], axis=1)


def _products(family: SpanFamily, coefficients: Matrix) -> tuple[Matrix, Matrix]:
    """gram (T, T, d, d) and moment (T, d, e) of the features of all T points."""
    n_points, n_dims = len(coefficients), family.basis.shape[1]
    features = family.seen(coefficients)
    gram = (features.T @ features).reshape(n_points, n_dims, n_points, n_dims)
    moment = (features.T @ family.targets).reshape(n_points, n_dims, -1)
    return gram.transpose(0, 2, 1, 3), moment


def _explained(gram: Matrix, moment: Matrix, chosen: NDArray[np.intp]) -> Matrix:
    """How much of ||Y||^2 each candidate (c, m) explains, shape (c,)."""
    count, n_heads = chosen.shape
    size = n_heads * gram.shape[2]
    systems = gram[chosen[:, :, None], chosen[:, None, :]].transpose(0, 1, 3, 2, 4)
    systems = systems.reshape(count, size, size)
    trace = np.trace(systems, axis1=1, axis2=2)[:, None, None]
    systems = systems + RIDGE * np.maximum(trace, np.finfo(float).tiny) * np.eye(size)
    moments = moment[chosen].reshape(count, size, -1)
    return np.sum(moments * np.linalg.solve(systems, moments), axis=(1, 2))
