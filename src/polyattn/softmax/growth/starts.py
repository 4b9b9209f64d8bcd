"""Where descent starts: at random, near heads that were found, and with one head more.

A head with pattern p that parts into A + t D, A - t D with values V/2 + W, V/2 - W changes the
output of a query x by

    2 t x D Cov_p(X) W  +  t^2/2 sum_j p_j ((x D z_j)^2 - mean) z_j V  +  ...,     z_j = x_j - p X.

The correlation of the first term with the residual is vec(D)^T M vec(W), so the top singular
vectors of M are the best D.  That of the second is a quadratic form in D: its top eigenvectors are
the best D without new values.
"""

from __future__ import annotations

import numpy as np

from polyattn.softmax.examples import ExampleBlock, Examples, Matrix
from polyattn.softmax.polish.projection import Projection, patterns, project, responses, seen

# How far the two halves of a head go apart, relative to its norm, and how large a new one is.
PARTINGS = (0.05, 0.2, 0.6)
SIZES = (-2.0, -1.0, -0.3, 0.3, 1.0, 2.0)

# Starts that descend, for each unit of effort.
N_DESCENTS = 4

# Rows for which covariances are in memory together.
BLOCK_ROWS = 1 << 13


def grown_starts(
    examples: Examples, heads: Matrix, rng: np.random.Generator, effort: int
) -> list[Matrix]:
    """The most promising starts with one head more than ``heads`` (m, d, d), best first."""
    width = examples.width
    # Each start with what it is made of: of those that differ in a size alone, one is tried.
    starts: list[tuple[tuple[str, int, int], Matrix]] = []
    here = None
    if len(heads):
        here = project(examples, heads)
        heads = here.attn
        for head, A in enumerate(heads):
            others = np.delete(heads, head, axis=0)
            size = max(float(np.linalg.norm(A)), 1.0)
            for index, D in enumerate(splitting(examples, here, head, 1 + effort)):
                for t in PARTINGS:
                    halves = np.concatenate([others, [A + t * size * D, A - t * size * D]])
                    starts.append((("split", head, index), halves))
    else:
        starts.append((("uniform", 0, 0), np.zeros((1, width, width))))
    for index, D in enumerate(adding(examples, here, 1 + effort)):
        for size in SIZES:
            start = np.concatenate([heads, size * D[None]])
            starts.append((("new", index, int(size > 0)), start))
    for index in range(2 * effort):
        extra = random_heads(rng, 1, width, 1.0)
        starts.append((("random", index, 0), np.concatenate([heads, extra])))
    errors = [project(examples, attn).error for _, attn in starts]
    best_of_origin: dict[tuple[str, int, int], Matrix] = {}
    for at in np.argsort(errors, kind="stable"):
        best_of_origin.setdefault(*starts[at])
    return list(best_of_origin.values())[: N_DESCENTS * effort]


def random_heads(
    rng: np.random.Generator, n_heads: int, width: int, scale: float, rank: int | None = None
) -> Matrix:
    """Gaussian heads (m, d, d) whose logits on tokens of order one have this scale."""
    if rank is None:
        return rng.standard_normal((n_heads, width, width)) * (scale / width)
    queries = rng.standard_normal((n_heads, width, rank))
    keys = rng.standard_normal((n_heads, rank, width))
    return queries @ keys * (scale / (width * np.sqrt(rank)))


def random_mixtures(
    rng: np.random.Generator, n_heads: int, matrices: Matrix, scale: float
) -> Matrix:
    """Random combinations (m, d, d) of matrices of norm one, of norm about ``scale``."""
    weights = rng.standard_normal((n_heads, len(matrices))) * (scale / np.sqrt(len(matrices)))
    return np.tensordot(weights, matrices, axes=1)


def directions(heads: Matrix) -> Matrix:
    """Heads (m, d, d) divided by their norms; zero stays zero."""
    norms = np.linalg.norm(heads, axis=(1, 2), keepdims=True)
    return heads / np.where(norms > 0, norms, 1.0)


def common_products(heads: Matrix, minor: float) -> Matrix:
    """Orthonormal matrices u v^T (r, d, d) of the main directions of queries and keys.

    u are the main left singular vectors of all heads side by side, v the right ones of all
    heads one upon another, but for the share ``minor`` of their squared norm: at a local
    minimum these are often right when the heads are not.
    """
    units = directions(heads)
    main = []
    for matrices in (units, units.transpose(0, 2, 1)):
        left, sigma, _ = np.linalg.svd(np.concatenate(list(matrices), axis=1), full_matrices=False)
        left_out = 1.0 - np.cumsum(sigma**2) / max(float(np.sum(sigma**2)), np.finfo(float).tiny)
        main.append(left[:, : 1 + int(np.count_nonzero(left_out > minor))])
    return np.einsum("au,bv->uvab", *main).reshape(-1, *heads.shape[1:])


def splitting(examples: Examples, here: Projection, head: int, count: int) -> list[Matrix]:
    """Directions (d, d) of norm one in which ``head`` should part, ``count`` of each kind."""
    A, V = here.attn[head], here.value[head]
    width = len(A)
    bilinear: Matrix = np.zeros((width * here.value.shape[2], width * width))
    quadratic: Matrix = np.zeros((width * width, width * width))
    for block in examples.blocks(BLOCK_ROWS):
        queries, residual = _queries_and_residual(block, here)
        pattern = patterns(block, A)
        covariances = responses(block, [pattern], np.eye(width)[None])
        bilinear += _products(queries, residual).T @ covariances.reshape(block.n_rows, -1)
        # sum_j p_j (z_j . R V^T) z_j z_j^T of every row, z_j = x_j - p X, shape (B r, d d).
        apart = block.keys[:, None] - (pattern @ block.keys)[:, :, None]
        pulled = (residual @ V.T).reshape(*pattern.shape[:2], width, 1)
        weighted = apart * (np.matmul(apart, pulled) * pattern[..., None])
        skewness = np.matmul(weighted.swapaxes(2, 3), apart).reshape(block.n_rows, -1)
        quadratic += _products(queries, queries).T @ skewness
    found = _left_directions(bilinear, width, count)
    form = quadratic.reshape((width,) * 4).transpose(0, 2, 1, 3).reshape(width**2, -1)
    vectors = np.linalg.eigh((form + form.T) / 2)[1][:, ::-1]
    return found + [vectors[:, q].reshape(width, width) for q in range(min(count, width**2))]


def adding(examples: Examples, here: Projection | None, count: int) -> list[Matrix]:
    """Directions (d, d) of norm one for a new head that attends almost uniformly.

    Once for the covariances of the keys as they are, once for their deviations from the mean.
    """
    width = examples.width
    uniform = np.zeros((width, width))
    raw: Matrix = np.zeros((width * examples.n_outputs, width * width))
    linear: Matrix = np.zeros((width, examples.n_outputs))
    total: Matrix = np.zeros(width * width)
    for block in examples.blocks(BLOCK_ROWS):
        queries, residual = _queries_and_residual(block, here)
        covariances = responses(block, [patterns(block, uniform)], np.eye(width)[None])
        covariances = covariances.reshape(block.n_rows, -1)
        raw += _products(queries, residual).T @ covariances
        linear += queries.T @ residual
        total += covariances.sum(axis=0)
    centred = raw - np.outer(linear.reshape(-1), total / examples.n_rows)
    return [D for part in (raw, centred) for D in _left_directions(part, width, count)]


def _queries_and_residual(block: ExampleBlock, here: Projection | None) -> tuple[Matrix, Matrix]:
    residual = block.targets.reshape(block.n_rows, -1)
    if here is not None:
        residual = residual - seen(block, here.attn) @ here.stacked_value
    return block.queries.reshape(block.n_rows, -1), residual


def _products(left: Matrix, right: Matrix) -> Matrix:
    return (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)


def _left_directions(felt: Matrix, width: int, count: int) -> list[Matrix]:
    """The D of the top singular vectors of M[(a b), (b' c)] = felt[(a c), (b b')]."""
    n_outputs = len(felt) // width
    tensor = felt.reshape(width, n_outputs, width, width).transpose(0, 2, 3, 1)
    paired = tensor.reshape(width * width, width * n_outputs)
    vectors = np.linalg.eigh(paired @ paired.T)[1][:, ::-1]
    return [vectors[:, q].reshape(width, width) for q in range(min(count, *paired.shape))]
