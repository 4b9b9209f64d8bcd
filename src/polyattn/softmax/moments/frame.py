"""Coordinates in which tokens are white: moments of any centred tokens look alike there.

With mean mu and covariance Sigma of the tokens, z = (x - mu) W has covariance one, where
W = E diag(s)^-1/2 for Sigma = E diag(s) E^T on its range.  In these coordinates a head is

    logits  [1, z] B z_j^T + (the same for all j),      B = [mu A U^T; U A U^T]  (1 + r, r),

with U = diag(s)^1/2 E^T, the inverse of W on the range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.polish.projection import patterns

Matrix = NDArray[np.float64]

# Variances below this, relative to the largest, are those of a constant coordinate.
CONSTANT = 1e-10

# Predicted positions whose covariances are in memory together.
BLOCK_ROWS = 1 << 12


@dataclass(frozen=True)
class WhiteFrame:
    """The affine map to white tokens.

    mean : (d,);  whitening : W (d, r);  colouring : U (r, d)
    """

    mean: Matrix
    whitening: Matrix
    colouring: Matrix

    @property
    def n_white(self) -> int:
        """r, the number of coordinates in which tokens vary."""
        return self.whitening.shape[1]

    def white(self, block: ExampleBlock) -> tuple[Matrix, Matrix, Matrix]:
        """Queries [1, z] (B, q, 1 + r), keys z (B, n, r), uniform weights of the seen (B, q, n)."""
        keys = (block.keys - self.mean) @ self.whitening
        asking = keys[:, keys.shape[1] - block.targets.shape[1] :]
        queries = np.concatenate([np.ones((*asking.shape[:2], 1)), asking], axis=2)
        weights = patterns(block, np.zeros((len(self.mean), len(self.mean))))
        return queries, keys, weights

    def heads(self, white_heads: Matrix) -> Matrix:
        """Heads (m, d, d) of the tokens from heads B (m, 1 + r, r) of the white tokens.

        The first row of B says nothing new unless a coordinate is constant: then it is the
        only trace of that coordinate's row.
        """
        inner = white_heads[:, 1:]
        attn = self.whitening @ inner @ self.whitening.T
        constant = self.mean - (self.mean @ self.whitening) @ self.colouring
        size = float(constant @ constant)
        if size <= CONSTANT * max(1.0, float(self.mean @ self.mean)):
            return attn
        missing = (white_heads[:, 0] - (self.mean @ self.whitening) @ inner) @ self.whitening.T
        return attn + constant[:, None] * missing[:, None, :] / size


def frame_of(examples: Examples) -> WhiteFrame:
    """The frame of all tokens of the examples."""
    count = sum(group.keys.shape[0] * group.keys.shape[1] for group in examples.groups)
    mean = sum(group.keys.sum(axis=(0, 1)) for group in examples.groups) / count
    second: Matrix = np.zeros((examples.width, examples.width))
    for block in examples.blocks(BLOCK_ROWS):
        deviations = (block.keys - mean).reshape(-1, examples.width)
        second += deviations.T @ deviations
    variances, axes = np.linalg.eigh(second / count)
    varying = variances > CONSTANT * max(float(variances[-1]), np.finfo(float).tiny)
    scale = np.sqrt(variances[varying])
    axes = axes[:, varying]
    return WhiteFrame(mean, axes / scale, (axes * scale).T)
