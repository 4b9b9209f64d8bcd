"""Phase 6, the search in the span: values by regression, held-out examples decide [chen2024].

The paper tries all points of an epsilon-net of the m^2 coefficients, and certifies them.  Here a
net of attention matrices base + sum_a t_a D_a picks the starting points, some more are drawn at
random, and Levenberg–Marquardt goes from each to the nearest minimum in the span.  Where K* was
calibrated, linear programs say how far it reaches in the hull, the net has the points in K* alone,
and minima whose heads all lie in K* come before others.  The features F_t = p_t X of
a point do not depend on the other heads, so the products F_s^T F_t and F_t^T Y of all points are
made once, and a candidate, m points, costs one (m d) x (m d) system.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, qr

from polyattn.model.softmax import softmax
from polyattn.numerics.damping import Damping, Rest
from polyattn.softmax.examples import ExampleBlock, Examples, Matrix
from polyattn.softmax.polish import Projection, project
from polyattn.softmax.recorder import Note, require_time
from polyattn.softmax.sculpting.body import ConvexBody
from polyattn.softmax.sculpting.find_span import HeadSpan
from polyattn.softmax.sculpting.row_patterns import views
from polyattn.softmax.sculpting.slab_programs import linear_program

# Descent starts at so many of the best candidates of the net and so many random ones, which stretch
# the base by this much.
FROM_NET, FROM_RANDOM, STRETCH = 4, 4, 0.3

# Rows that the search fits, and per unknown value at the least.
SEARCH_ROWS, ROWS_PER_VALUE = 1600, 4

# A held-out error below this needs no further start.
EXACT = 1e-6

# Points on one axis of the net, points in all, candidates, and those that are solved at once.
POINTS_PER_AXIS, MOST_POINTS, MOST_CANDIDATES, BATCH = 33, 64, 4096, 512

# Keeps systems of nearly equal heads solvable, relative to their trace.
RIDGE = 1e-9

# Descent ends when a step gains less than this, relatively; at most so many steps, trials for each.
DAMPING, REST, MOST_STEPS, MOST_TRIALS = Damping(least=1e-9), Rest(1, 1e-4), 40, 8


def search_span(
    fitting: Examples,
    held_out: Examples,
    span: HeadSpan,
    n_heads: int,
    rng: np.random.Generator,
    on_step: Callable[[Projection], None] | None = None,
    note: Note | None = None,
    body: ConvexBody | None = None,
) -> SearchedHeads:
    """Heads A_i = G_i0 base + sum_a G_ia D_a of least held-out error among minima.

    ``on_step`` is called with every start that is better than those before it; what it raises
    ends the search.  Values are those of regression on all examples but the held-out ones.
    ``body`` is a K* that contains the heads with some confidence: candidates in it go first.
    """
    # As many examples as give SEARCH_ROWS rows, or more if there are many values to fit.
    rows = max(SEARCH_ROWS, ROWS_PER_VALUE * n_heads * (fitting.width - fitting.bias))
    some = fitting.first(max(1, -(-rows * len(fitting) // fitting.n_rows)))
    family = SpanFamily(views(some), span.basis)
    test = SpanFamily(views(held_out), span.basis)
    # How far from the base heads may lie, by the widths of K* or by its norm: for m independent
    # matrices of equal size the distance from their mean is sqrt(m - 1) times the norm of the mean.
    by_norm = (1 + np.sqrt(n_heads - 1)) * float(np.linalg.norm(span.base))
    radius = max(by_norm, *([width for width in span.widths if np.isfinite(width)] or [1.0]))
    if body is not None:
        radius = _reach(body, span, radius)
    starts, n_candidates = best_of_net(family, n_heads, radius, FROM_NET, rng, body)
    net_error = family.fit(starts[0]).error
    for _ in range(FROM_RANDOM if n_heads > 1 else 0):
        # The base for every head, stretched and moved at random within the span.
        stretched = 1 + STRETCH * rng.standard_normal((n_heads, 1))
        moved = rng.standard_normal((n_heads, len(span.basis) - 1)) * radius / 2
        starts.append(np.concatenate([stretched, moved], axis=1))
    # Where no descent gives a number the start is all there is.
    unknown = None if body is None else np.inf
    best = SearchedHeads(project(fitting, family.attn(starts[0])), np.inf, unknown)
    fitted, tried, n_certified = np.inf, 0, 0
    for start in starts:
        found = family.descend(start)
        tried += 1
        residual = test.targets - test.seen(found.G) @ found.value.reshape(-1, fitting.n_outputs)
        error = float(np.linalg.norm(residual)) / test.size
        attn = family.attn(found.G)
        stray = None if body is None else max(body.stray(A) for A in attn)
        n_certified += stray is not None and stray <= 1.0
        if (_uncertified(stray), error) < (_uncertified(best.stray), best.error):
            best = SearchedHeads(project(fitting, attn), error, stray)
            fitted = found.error
            if on_step is not None:
                on_step(best.heads)
        if best.error < EXACT:
            break
    certified = f", {n_certified} of them in K*" if body is not None else ""
    (note or Note()).say(
        f"{n_candidates} points of the net and {tried} descents{certified}; held-out error "
        f"{best.error:.2g} in the span.",
        candidates=n_candidates,
        starts=tried,
        certified=None if body is None else n_certified,
        stray=best.stray,
        best_of_net=net_error,
        fitted=fitted,
        validated=best.error,
    )
    return best


class SearchedHeads(NamedTuple):
    """Heads with their held-out error, and their largest stray in slacks of K*, if that is known.

    A stray of at most 1 says that all of them lie in K*.
    """

    heads: Projection
    error: float
    stray: float | None


def _uncertified(stray: float | None) -> bool:
    return stray is not None and stray > 1.0


def _reach(body: ConvexBody, span: HeadSpan, otherwise: float) -> float:
    """How far K* reaches from the base along an axis of the affine hull, the largest of all.

    ``otherwise`` where that is no number: K* is unbounded there, or the base is not in it.
    Cost: 2 (m - 1) linear programs in m - 1 unknowns.
    """
    count = len(span.directions)
    flat = body.normals.reshape(len(body), -1)
    across = flat @ span.directions.reshape(count, flat.shape[1]).T
    rest = body.rhs - flat @ span.base.reshape(-1)
    reached = []
    for axis in np.eye(count):
        for goal in (axis, -axis):
            point = linear_program(goal, across, rest, body.slack)[1]
            reached.append(np.inf if point is None else float(goal @ point))
    reach = max(reached, default=np.inf)
    return reach if 0.0 < reach < np.inf else otherwise


def best_of_net(
    family: SpanFamily,
    n_heads: int,
    radius: float,
    count: int,
    rng: np.random.Generator,
    body: ConvexBody | None = None,
) -> tuple[list[Matrix], int]:
    """Coefficients (m, m') of the ``count`` best candidates, best first, and how many were tried.

    Within |t| <= ``radius`` the net is a grid for one or two directions and random points for
    more; all choices of m points are tried, or MOST_CANDIDATES of them drawn at random.  With
    ``body`` only points in it, but never fewer than m.

    Guarantee: for m = 2 the best pair up to the spacing of the net, radius / 16.
    Cost: rows (points d)^2 + candidates (m d)^3.
    """
    points = _points(family.basis.shape[0] - 1, radius, rng)
    coefficients = np.concatenate([np.ones((len(points), 1)), points], axis=1)
    if body is not None:
        strays = np.array([body.stray(A) for A in family.attn(coefficients)])
        inside = np.argsort(strays, kind="stable")
        inside = np.sort(inside[: max(n_heads, int(np.count_nonzero(strays <= 1.0)))])
        points, coefficients = points[inside], coefficients[inside]
    chosen = _choices(len(points), n_heads, rng)
    # Products (T, T, d, d) and (T, d, e) of the features of all T points.
    n_points, n_dims = len(points), family.basis.shape[1]
    features = family.seen(coefficients)
    gram = (features.T @ features).reshape(n_points, n_dims, n_points, n_dims)
    gram = gram.transpose(0, 2, 1, 3)
    moment = (features.T @ family.targets).reshape(n_points, n_dims, -1)
    # How much of ||Y||^2 each candidate explains.
    explained, size = np.empty(len(chosen)), n_heads * n_dims
    for first in range(0, len(chosen), BATCH):
        batch = chosen[first : first + BATCH]
        systems = gram[batch[:, :, None], batch[:, None, :]].transpose(0, 1, 3, 2, 4)
        systems = systems.reshape(-1, size, size)
        trace = np.trace(systems, axis1=1, axis2=2)[:, None, None]
        systems = systems + RIDGE * np.maximum(trace, np.finfo(float).tiny) * np.eye(size)
        moments = moment[batch].reshape(len(batch), size, -1)
        solved = np.sum(moments * np.linalg.solve(systems, moments), axis=(1, 2))
        explained[first : first + BATCH] = solved
    order = np.argsort(-explained, kind="stable")[:count]
    return [coefficients[chosen[index]] for index in order], len(chosen)


def _points(n_directions: int, radius: float, rng: np.random.Generator) -> Matrix:
    if n_directions > 2:
        return rng.uniform(-radius, radius, (MOST_POINTS, n_directions))
    per_axis = POINTS_PER_AXIS if n_directions == 1 else int(np.sqrt(MOST_POINTS))
    ticks = np.linspace(-radius, radius, per_axis)
    return np.array(list(product(ticks, repeat=n_directions)))[:, ::-1]


def _choices(n_points: int, n_heads: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Different points for all heads, shape (candidates, m); if there are too few, any points."""
    if n_points < n_heads:
        return rng.integers(0, n_points, (BATCH, n_heads))
    if comb(n_points, n_heads) <= MOST_CANDIDATES:
        return np.array(list(combinations(range(n_points), n_heads)), dtype=np.intp)
    keys = rng.random((MOST_CANDIDATES, n_points))
    return np.sort(np.argpartition(keys, n_heads - 1, axis=1)[:, :n_heads], axis=1)


class SpanFamily:
    """All heads A_i = sum_a G_ia B_a in the span of a basis (m', d, d), no key being hidden.

    Logits are linear in G, so those of the basis are computed once,

        L_a = X B_a X^T,   p_i = softmax(sum_a G_ia L_a),   d p_i / d G_ia = p_i (L_a - <p_i, L_a>),

    and a step of descent costs no more than the m^2 columns of its Jacobian.  Values are eliminated
    as in ``polish``: every trial has the best ones.
    """

    def __init__(self, blocks: tuple[ExampleBlock, ...], basis: Matrix) -> None:
        self.basis = basis
        self.blocks = blocks
        self.targets = np.concatenate([block.targets.reshape(block.n_rows, -1) for block in blocks])
        self.size = max(float(np.linalg.norm(self.targets)), np.finfo(float).tiny)
        # X B_a X^T at the predicted positions of every block, shape (m', B, r, n).
        self._logits = [
            (block.queries[None] @ basis[:, None]) @ block.keys.transpose(0, 2, 1)[None]
            for block in blocks
        ]

    def attn(self, G: Matrix) -> Matrix:
        """Heads (m, d, d) of coefficients G (m, m')."""
        return np.tensordot(G, self.basis, axes=1)

    def seen(self, G: Matrix) -> Matrix:
        """[p_1 X, ..., p_m X], shape (rows, m d)."""
        parts = []
        for block, weights in zip(self.blocks, self._weights(G), strict=True):
            features = weights @ block.keys[None]
            parts.append(features.transpose(1, 2, 0, 3).reshape(block.n_rows, -1))
        return np.concatenate(parts)

    def slopes(self, G: Matrix, value: Matrix) -> Matrix:
        """d y / d G for values (m, d, e), shape (rows, e, m m')."""
        parts = []
        for block, logits, weights in zip(self.blocks, self._logits, self._weights(G), strict=True):
            p = weights[:, None]
            moved = p * (logits - np.sum(p * logits, axis=4, keepdims=True))
            change = moved @ (block.keys @ value[:, None])[:, None]
            parts.append(change.transpose(2, 3, 4, 0, 1).reshape(block.n_rows, -1, G.size))
        return np.concatenate(parts)

    def fit(self, G: Matrix) -> SpanFit:
        """The values of least squared error for the heads of G."""
        seen = self.seen(G)
        stacked = lstsq(seen, self.targets, cond=1e-12, check_finite=False)[0]
        value = stacked.reshape(len(G), self.basis.shape[1], -1)
        residual = self.targets - seen @ stacked
        return SpanFit(G, value, float(np.linalg.norm(residual)) / self.size, seen, residual)

    def descend(self, G: Matrix) -> SpanFit:
        """Levenberg–Marquardt over G (m, m') until nothing is gained.

        Guarantee: the error never rises.
        Cost: O(rows (m d)^2 + rows e (m m')^2) per step.
        """
        here, damping = self.fit(G), DAMPING.first
        for _ in range(MOST_STEPS):
            require_time()
            step = self._damped_steps(here)
            for _ in range(MOST_TRIALS):
                trial = self.fit(here.G + step(damping).reshape(G.shape))
                if trial.error < here.error:
                    break
                damping = DAMPING.raised(damping)
            else:
                return here
            before, here, damping = here, trial, DAMPING.lowered(damping)
            if REST.reached([before.error, here.error]):
                break
        return here

    def _damped_steps(self, here: SpanFit) -> Callable[[float], Matrix]:
        """damping -> (hessian + damping diag(hessian))^-1 gradient, from one decomposition.

        The hessian is J^T (1 - Z Z^+) J, the gradient J^T residual (Kaufman).
        """
        slopes = self.slopes(here.G, here.value)
        rows, n_outputs, count = slopes.shape
        flat = slopes.reshape(rows * n_outputs, count)
        orthonormal = qr(here.seen, mode="economic", check_finite=False)[0]
        followed = np.tensordot(orthonormal.T, slopes, axes=1).reshape(-1, count)
        hessian = flat.T @ flat - followed.T @ followed
        hessian = (hessian + hessian.T) / 2
        diagonal = np.diag(hessian)
        scale = np.sqrt(np.maximum(diagonal, 1e-12 * max(diagonal.max(), np.finfo(float).tiny)))
        sizes, axes = np.linalg.eigh(hessian / np.outer(scale, scale))
        wanted = axes.T @ (flat.T @ here.residual.reshape(-1) / scale)
        return lambda damping: (axes @ (wanted / (np.maximum(sizes, 0.0) + damping))) / scale

    def _weights(self, G: Matrix) -> list[Matrix]:
        """Patterns (m, B, r, n) of every block."""
        return [softmax(np.tensordot(G, logits, axes=1)) for logits in self._logits]


class SpanFit(NamedTuple):
    """Coefficients G (m, m') with their best values (m, d, e) and relative residual."""

    G: Matrix
    value: Matrix
    error: float
    seen: Matrix
    residual: Matrix
