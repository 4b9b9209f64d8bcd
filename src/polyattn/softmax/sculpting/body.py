"""The convex body K = {A : |<normal_q, A> - rhs_q| <= slack_q for all q}.

Membership is a product, support points are linear programs (HiGHS), the point of least norm is
a quadratic program (Clarabel).  Slabs are many more than unknowns, so programs are solved over few
of them by cutting planes: an answer for some of the slabs that satisfies all others is the answer
for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from polyattn.softmax.examples import Matrix
from polyattn.softmax.recorder import require_time
from polyattn.softmax.sculpting import slab_programs
from polyattn.softmax.sculpting.slab_programs import Status

# Directions in which the normals have less than this of their largest size are free.
RANK_TOLERANCE = 1e-9

# How far outside a constraint, relative to the sizes in it, solvers may leave a point.
ROUNDING = 1e-7


@dataclass(frozen=True)
class Extreme:
    """An extreme point of K: ``point`` (d, d) or None, ``value`` of the objective there."""

    status: Status
    value: float
    point: Matrix | None


@dataclass(frozen=True)
class ConvexBody:
    """normals (Q, d, d), rhs (Q,), slack (Q,): slabs that A (d, d) lies in.

    K never contains a half-line except along ``free``: the recession cone of a set of slabs is
    the null space of their normals.
    """

    normals: Matrix
    rhs: Matrix
    slack: Matrix

    def __len__(self) -> int:
        return len(self.rhs)

    def excess(self, A: Matrix) -> Matrix:
        """|<normal_q, A> - rhs_q| - slack_q, shape (Q,): positive where A is outside."""
        return np.abs(self._flat @ A.reshape(-1) - self.rhs) - self.slack

    def contains(self, A: Matrix) -> bool:
        """Whether A satisfies every constraint up to rounding."""
        return bool(np.all(self.excess(A) <= self._rounding))

    def stray(self, A: Matrix) -> float:
        """The largest |<normal_q, A> - rhs_q| / slack_q: A is in K iff it is at most 1."""
        return float((1.0 + self.excess(A) / self.slack).max(initial=0.0))

    def widened(self, factor: float) -> ConvexBody:
        """The body with all slacks multiplied by ``factor``."""
        return ConvexBody(self.normals, self.rhs, factor * self.slack)

    def ellipsoid(self) -> tuple[Matrix, Matrix]:
        """Eigenvalues (d^2,), rising, and axes (d^2, d^2) of H = sum_q n_q n_q^T / slack_q^2.

        Guarantee: with t = stray(C) < 1 of a point C of K, and Q slabs,

            {|A - C|_H <= 1 - t}  is inside K, and K inside  {|A - C|_H <= (1 + t) sqrt(Q)},

        because |<n_q, A - C>| lies between (1 - t) slack_q and (1 + t) slack_q.  So K is long,
        up to a factor, exactly along the axes of small eigenvalues.
        Cost: Q d^4 + d^6.
        """
        scaled = self._flat / self.slack[:, None]
        sizes, axes = np.linalg.eigh(scaled.T @ scaled)
        return sizes, axes

    def support(self, direction: Matrix, inside: Matrix | None = None) -> Extreme:
        """The point of K that is farthest along ``direction``: max <direction, A>.

        Guarantee: optimal over all constraints, to the tolerance of the solver.
        Cost: a few linear programs in d^2 unknowns with a few d^2 constraints.  From a point
        strictly ``inside`` K, which is faster when d is large, about twenty products of Q d^4
        multiply-adds, unless the interior method does not close its gap.
        """
        goal = np.asarray(direction, dtype=np.float64).reshape(-1)
        if inside is not None:
            flat = inside.reshape(-1)
            point = slab_programs.farthest(goal, self._flat, self.rhs, self.slack, flat)
            if point is not None:
                return self._extreme("found", float(goal @ point), point)
        if np.linalg.norm(self.free @ goal) > RANK_TOLERANCE * np.linalg.norm(goal):
            empty = not self.feasible().value <= self._rounding
            return Extreme("empty" if empty else "unbounded", -np.inf if empty else np.inf, None)
        status, point = self._cut(partial(slab_programs.linear_program, goal))
        value = -np.inf if point is None else float(goal @ point)
        return self._extreme(status, value, point)

    def minimum_norm(self) -> Extreme:
        """The point of K of least Frobenius norm, and that norm; it is unique.

        Cost: a few quadratic programs in d^2 unknowns with a few d^2 constraints.
        """
        status, point = self._cut(slab_programs.norm_program)
        value = np.inf if point is None else float(np.linalg.norm(point))
        return self._extreme(status, value, point)

    def feasible(self) -> Extreme:
        """The point whose worst violation is least: K is empty iff ``value`` is positive."""
        if len(self) == 0:
            return Extreme("found", -np.inf, np.zeros(self.normals.shape[1:]))
        status, found = self._cut(slab_programs.depth_program)
        if found is None:
            return Extreme(status, np.inf, None)
        value = float(self.excess(found[:-1]).max())
        return self._extreme("found" if value <= self._rounding else "empty", value, found[:-1])

    @cached_property
    def free(self) -> Matrix:
        """Orthonormal directions (f, d^2) that are in no constraint: K is bounded iff f = 0."""
        sizes, axes = np.linalg.eigh(self._flat.T @ self._flat)
        return axes[:, sizes <= RANK_TOLERANCE * max(sizes[-1], np.finfo(float).tiny)].T

    @cached_property
    def _flat(self) -> Matrix:
        return self.normals.reshape(len(self), self.normals.shape[1] * self.normals.shape[2])

    @cached_property
    def _first(self) -> NDArray[np.intp]:
        """Independent constraints, narrow slabs first: with them every program is bounded."""
        narrow = self._flat / np.maximum(self.slack, self._rounding)[:, None]
        pivots = qr(narrow.T, mode="r", pivoting=True, check_finite=False)[1]
        return np.sort(pivots[: min(self._flat.shape)])

    @cached_property
    def _rounding(self) -> float:
        return ROUNDING * (1.0 + float(np.abs(self.rhs).max(initial=0.0)))

    def _cut(
        self, program: Callable[[Matrix, Matrix, Matrix], tuple[Status, Matrix | None]]
    ) -> tuple[Status, Matrix | None]:
        """Solve ``program(normals, rhs, slack)`` over all Q slabs by cutting planes.

        The answer is a vector that begins with the point (d^2,); an entry after it is an allowance
        by which every slab is widened.  Slabs that are violated are added, the worst first, as
        many at once as there are unknowns; a slab never leaves, so this ends.

        Guarantee: a point that is found satisfies every slab up to rounding; "empty" for a part of
        the slabs is "empty" for all.
        """
        n_unknowns = self._flat.shape[1]
        kept = np.zeros(len(self), dtype=bool)
        kept[self._first] = True
        while True:
            status, found = program(self._flat[kept], self.rhs[kept], self.slack[kept])
            require_time()
            if found is None:
                return status, None
            excess = self.excess(found[:n_unknowns])
            if len(found) > n_unknowns:
                excess -= found[n_unknowns]
            excess[kept] = 0.0
            violated = np.flatnonzero(excess > self._rounding)
            if len(violated) == 0:
                return status, found
            order = np.argsort(-excess[violated], kind="stable")
            kept[violated[order[: max(8, n_unknowns)]]] = True

    def _extreme(self, status: Status, value: float, point: Matrix | None) -> Extreme:
        shaped = None if point is None else point.reshape(self.normals.shape[1:])
        return Extreme(status, value, shaped)
