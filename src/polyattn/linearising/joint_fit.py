"""All heads and a token-wise linear map together: the layer's own least squares.

The errors of heads that were fitted one by one add up, and may be of one sign.  The output of the
layer, sum_h o^_h E_h + x W, is linear in all M_h and W at once, so its squared error has a global
minimiser too.  Its normal equations are too large to be formed (H p unknowns and more), but a pass
over the data applies them, and those of single heads, which are factored already, precondition
conjugate gradients: the diagonal blocks of the matrix are theirs, since E_h E_h^T = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.linearising.fit_heads import FittedHead
from polyattn.linearising.head_blocks import predictions
from polyattn.linearising.head_sums import HeadBlock, correlated
from polyattn.linearising.layer_view import LayerBlock, LayerBlocks, LayerView
from polyattn.linearising.token_map import TOKEN_RIDGE, TokenSums
from polyattn.numerics.parallel import map_pieces

Array = NDArray[np.float64]

# The unknowns: M of each head, and last W (d + 1, e), the row of the constant included.
Unknowns = list[Array]

MOST_PASSES = 24

# It ends where a pass takes less than this share off what is left.
ENOUGH = 2e-3


class JointFit(NamedTuple):
    """What was found: M of each head, W (d + 1, e) or None, passes, and whether it converged."""

    mixings: list[Array]
    skip: Array | None
    n_passes: int
    converged: bool


def fit_together(
    view: LayerView, blocks: LayerBlocks, fitted: Sequence[FittedHead], skip: Array | None
) -> JointFit:
    """The least squared error of the layer's outputs over all M_h, and W.

    skip : W (d + 1, e) to begin with; None where there is none

    Guarantee: a convex problem; the error falls with every pass, from that of the given heads,
    and ``converged`` says that the last one took less than ENOUGH of it off.
    Cost: one pass over the data for each iteration, without softmax; memory as for one head.
    """
    start = [each.mixing for each in fitted] + ([] if skip is None else [skip])
    problem = _Problem(view, blocks, fitted, skip is not None)
    found, n_passes, converged = problem.solve(start)
    weights = None if skip is None else found[-1]
    return JointFit(found[: len(fitted)], weights, n_passes, converged)


class _Problem:
    """Normal equations of the layer, applied by passes over the data."""

    def __init__(
        self,
        view: LayerView,
        blocks: LayerBlocks,
        fitted: Sequence[FittedHead],
        skip: bool,
    ) -> None:
        self.view, self.blocks, self.fitted = view, blocks, fitted
        self.skip, self.power = skip, 0.0
        self.of_tokens = TokenSums(view.heads.n_dims + 1, view.heads.n_outputs)

    def solve(self, x: Unknowns) -> tuple[Unknowns, int, bool]:
        """Conjugate gradients from x."""
        right = self._right_side()
        residual = _sum(right, self._apply(x), -1.0)
        z = self._precondition(residual)
        direction, size = z, _dot(residual, z)
        left = self._error(x, right, residual)
        for n_passes in range(1, MOST_PASSES + 1):
            if size <= 0.0:
                return x, n_passes - 1, True
            moved = self._apply(direction)
            along = _dot(direction, moved)
            if along <= 0.0:
                return x, n_passes, True
            step = size / along
            x, residual = _sum(x, direction, step), _sum(residual, moved, -step)
            # A step takes size * step off the squared error and its penalty.
            before, left = left, left - size * step
            if before - left <= ENOUGH * max(left, 0.0) or left <= 0.0:
                return x, n_passes, True
            z = self._precondition(residual)
            size, last = _dot(residual, z), size
            direction = _sum(z, direction, size / last)
        return x, MOST_PASSES, False

    def _right_side(self) -> Unknowns:
        """What the unknowns are compared with, and sums over tokens: one pass, with softmax."""
        found = self._zeros()
        for block in self.blocks:
            targets = map_pieces(block.targets, range(len(self.fitted)))
            outputs = self.view.in_outputs(targets)
            self.power += float(np.sum(outputs * outputs))
            tokens = block.tokens()
            self.of_tokens.add(tokens, outputs)
            self._add(found, tokens, self._of_heads(block), outputs)
        return found

    def _apply(self, x: Unknowns) -> Unknowns:
        """The normal matrix times x: one pass."""
        found = self._zeros()
        for block in self.blocks:
            of_heads, tokens = self._of_heads(block), block.tokens()
            each = zip(of_heads, x, strict=False)
            outputs = self.view.in_outputs([predictions(head, M) for head, M in each])
            if self.skip:
                outputs += tokens @ x[-1]
            self._add(found, tokens, of_heads, outputs)
        for total, M, head in zip(found, x, self.fitted, strict=False):
            total += head.ridge * head.diagonal * M
        if self.skip:
            found[-1] += TOKEN_RIDGE * self.of_tokens.gram.diagonal()[:, None] * x[-1]
        return found

    def _of_heads(self, block: LayerBlock) -> list[HeadBlock]:
        return map_pieces(block.of_head, range(len(self.fitted)))

    def _add(
        self, found: Unknowns, tokens: Array, of_heads: list[HeadBlock], outputs: Array
    ) -> None:
        """The transpose of the map from unknowns to outputs."""
        for h, head in enumerate(of_heads):
            found[h] += correlated(head, outputs @ self.view.coordinates[h][1].T)
        if self.skip:
            flat = outputs.reshape(-1, outputs.shape[2])
            found[-1] += tokens.reshape(len(flat), -1).T @ flat

    def _zeros(self) -> Unknowns:
        sizes = [head.mixing.shape for head in self.fitted]
        if self.skip:
            sizes.append((self.view.heads.n_dims + 1, self.view.heads.n_outputs))
        return [np.zeros(size) for size in sizes]

    def _precondition(self, residual: Unknowns) -> Unknowns:
        each = zip(self.fitted, residual, strict=False)
        found = [head.factor.apply(right) for head, right in each]
        if self.skip:
            found.append(self.of_tokens.solve(residual[-1]))
        return found

    def _error(self, x: Unknowns, right: Unknowns, residual: Unknowns) -> float:
        """The squared error of x with its penalty: ||y||^2 - b.x - r.x."""
        return self.power - _dot(right, x) - _dot(residual, x)


def _dot(a: Unknowns, b: Unknowns) -> float:
    return sum(float(np.sum(one * other)) for one, other in zip(a, b, strict=True))


def _sum(a: Unknowns, b: Unknowns, factor: float) -> Unknowns:
    return [one + factor * other for one, other in zip(a, b, strict=True)]
