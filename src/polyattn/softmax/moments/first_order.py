"""Heads to first order: correlate targets with query x covariance of the keys, then unfold.

Tokens of mean mu and covariance E diag(s) E^T are made white first, z = (x - mu) W with
W = E diag(s)^-1/2 and its inverse on the range, U = diag(s)^1/2 E^T.  There a head is

    logits  [1, z] B z_j^T + (the same for all j),      B = [mu A U^T; U A U^T]  (1 + r, r),

and with the covariance C of the keys that a query q = [1, z] sees, to first order in A

    y = mean(z) S + sum_i (q B_i) C V_i + ...,

so the coefficient of q_a C_bb' is M[a,b,b',c] + M[a,b',b,c] with M[a,b,b',c] =
sum_i B_i[a,b] V_i[b',c], of rank m as a matrix (a b) x (b' c).  A query sees its own token too,
which correlates these features: targets are correlated with q x C', what C would be were that
token zero.  Unfolding alternates between the nearest matrix of rank m and the nearest tensor
with the given fold.  Derivation: ``docs/derivations/softmax_moments.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq

from polyattn.softmax.examples import ExampleBlock, Examples, Matrix
from polyattn.softmax.polish.projection import patterns

# Relative to the largest, variances of tokens below this are those of a constant coordinate,
# features of a variance below the second are left out, and singular values below the third are
# no direction at all.
CONSTANT, INVISIBLE, NEGLIGIBLE = 1e-10, 0.02, 1e-8

# Predicted positions whose covariances are in memory together.
BLOCK_ROWS = 1 << 12

# Rounds of alternation, and the change at which they end.
ROUNDS, SETTLED = 30, 1e-4


class WhiteFrame(NamedTuple):
    """The affine map to white tokens.

    mean : (d,);  whitening : W (d, r), where r coordinates vary;  colouring : U (r, d)
    """

    mean: Matrix
    whitening: Matrix
    colouring: Matrix

    def white(self, block: ExampleBlock) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """Queries [1, z] (B, q, 1 + r), keys z (B, n, r), and what the queries see.

        Uniform weights of the keys (B, q, n), and the mean of these (B, q, r).
        """
        keys = (block.keys - self.mean) @ self.whitening
        asking = keys[:, keys.shape[1] - block.targets.shape[1] :]
        queries = np.concatenate([np.ones((*asking.shape[:2], 1)), asking], axis=2)
        weights = patterns(block, np.zeros((len(self.mean), len(self.mean))))
        return queries, keys, weights, weights @ keys

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


class Spans(NamedTuple):
    """Bases of the heads' spans: attn (s, 1 + r, r), value (s, r, e), s <= m; all of norm one.

    singular_values : of the unfolded tensor, up to three more than m
    """

    attn: Matrix
    value: Matrix
    singular_values: Matrix


def correlate(examples: Examples, frame: WhiteFrame) -> tuple[Matrix, NDArray[np.bool_], float]:
    """The folded tensor (1 + r, r, r, e): M + M with b, b' exchanged; M itself where b = b'.

    Then which pairs b, b' vary enough to be seen (r, r), symmetric, and the share of the targets'
    power that linear functions already explain.

    Cost: O(rows d^3 e), O(d^6) for the features' covariance; memory of one block.
    """
    n_white, n_outputs = frame.whitening.shape[1], examples.n_outputs
    # First the coefficients of the targets on [1, z, mean z].
    linear: Matrix = np.zeros((1 + 2 * n_white, 1 + 2 * n_white))
    moment: Matrix = np.zeros((1 + 2 * n_white, n_outputs))
    for block in examples.blocks(BLOCK_ROWS):
        queries, _, _, means = frame.white(block)
        features = np.concatenate([queries, means], axis=2).reshape(block.n_rows, -1)
        linear += features.T @ features
        moment += features.T @ block.targets.reshape(block.n_rows, -1)
    plane = lstsq(linear, moment, cond=1e-10)[0]
    power = examples.power
    explained = float(np.vdot(plane, moment) / power) if power > 0 else 1.0
    upper = np.triu_indices(n_white)
    n_pairs = len(upper[0])
    crossed: Matrix = np.zeros(((1 + n_white) * n_outputs, n_pairs))
    gram: Matrix = np.zeros((n_pairs, n_pairs))
    for block in examples.blocks(BLOCK_ROWS):
        queries, keys, weights, means = frame.white(block)
        features = np.concatenate([queries, means], axis=2).reshape(block.n_rows, -1)
        residual = block.targets.reshape(block.n_rows, -1) - features @ plane
        spread, others = _spreads(queries, keys, weights, means)
        queries = queries.reshape(block.n_rows, -1)
        products = (queries[:, :, None] * residual[:, None, :]).reshape(block.n_rows, -1)
        crossed += products.T @ others
        gram += others.T @ spread
    variances = np.diag(gram)
    seen = variances > INVISIBLE * variances.max(initial=np.finfo(float).tiny)
    coefficients: Matrix = np.zeros_like(crossed)
    if seen.any():
        gram = gram[np.ix_(seen, seen)]
        # Nearer to its diagonal, the more the fewer examples there are for each feature.
        share = len(gram) / (len(gram) + len(examples))
        trusted = (1 - share) * gram + share * np.diag(np.diag(gram))
        coefficients[:, seen] = lstsq(trusted, crossed[:, seen].T)[0].T
    table = coefficients.reshape(1 + n_white, n_outputs, n_pairs).transpose(0, 2, 1)
    pair = np.zeros((n_white, n_white), dtype=np.intp)
    pair[upper] = pair.T[upper] = np.arange(n_pairs)
    return np.take(table, pair, axis=1), seen[pair], explained


def unfold(
    folded: Matrix, visible: NDArray[np.bool_], n_heads: int, rng: np.random.Generator
) -> Spans:
    """The spans of ``n_heads`` heads that fit the folded tensor best, to a local optimum."""
    n_queries, n_white, _, n_outputs = folded.shape
    shape = (n_queries * n_white, n_white * n_outputs)
    rank = min(n_heads, *shape)
    tensor = _with_fold(np.zeros_like(folded), folded, visible)
    basis = rng.standard_normal((shape[0], rank))
    for _ in range(ROUNDS):
        matrix = tensor.reshape(shape)
        for _ in range(2):
            basis = np.linalg.qr(matrix @ (matrix.T @ basis))[0]
        low = (basis @ (basis.T @ matrix)).reshape(folded.shape)
        unfolded = _with_fold(low, folded, visible)
        change = np.linalg.norm(unfolded - tensor)
        tensor = unfolded
        if change <= SETTLED * np.linalg.norm(tensor):
            break
    left, sigma, right = np.linalg.svd(tensor.reshape(shape), full_matrices=False)
    kept = int(np.count_nonzero(sigma[:rank] > NEGLIGIBLE * sigma[:1].sum()))
    return Spans(
        left[:, :kept].T.reshape(kept, n_queries, n_white),
        right[:kept].reshape(kept, n_white, n_outputs),
        sigma[: n_heads + 3],
    )


def _spreads(queries: Matrix, keys: Matrix, weights: Matrix, means: Matrix) -> list[Matrix]:
    """Covariance of the keys that each query sees, and the same, were its own token zero.

    Pairs b <= b' (B q, n_pairs), less their mean at each position.
    """
    n_rows, own = queries.shape[0] * queries.shape[1], queries[..., 1:]
    share = weights.max(axis=2)[..., None]
    squares = np.matmul(keys.transpose(0, 2, 1)[:, None], weights[..., None] * keys[:, None])
    rest = means - share * own
    own = np.sqrt(share) * own
    upper = np.triu_indices(keys.shape[2])
    spreads = []
    for whole in (squares - _square(means), squares - _square(own) - _square(rest)):
        pairs = whole[:, :, upper[0], upper[1]]
        spreads.append((pairs - pairs.mean(axis=0)).reshape(n_rows, -1))
    return spreads


def _square(vectors: Matrix) -> Matrix:
    return vectors[..., :, None] * vectors[..., None, :]


def _with_fold(tensor: Matrix, folded: Matrix, visible: NDArray[np.bool_]) -> Matrix:
    """The nearest tensor whose fold is the given one, where that is visible."""
    diagonal = np.arange(tensor.shape[1])
    missing = (folded - tensor - tensor.transpose(0, 2, 1, 3)) / 2
    missing[:, diagonal, diagonal] *= 2
    missing[:, diagonal, diagonal] += tensor[:, diagonal, diagonal]
    missing[:, ~visible] = 0.0
    return tensor + missing
