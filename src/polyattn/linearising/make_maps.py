"""make_map: a feature map by its name, from the weights of given heads and samples of tokens.

``landmarks`` are representatives of the queries and of the keys that occur: centres of k-means, at
distances that count what logits see, (q - q')^T C (q - q') with C the covariance of the keys, so
that no basis of queries and keys is preferred.  The key feature of a representative query b is
exp(b.k): with a denominator of its own its row is the softmax attention of b, exactly.  The
query features of q are the attention that q pays to the representative keys, softmax(q.c).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidType, require_choice
from polyattn.linearising.softmax_heads import SoftmaxHeads
from polyattn.model.feature_maps import FeatureMap, SideMap

Array = NDArray[np.float64]

# Queries and keys of one head: (m, r) each.
Sample = tuple[Array, Array]

LLOYD_STEPS = 10

# A name, or a function of queries and keys.
MapName: TypeAlias = str | Callable[[Array], Array]

NAMES = ("landmarks", "linear", "taylor", "hedgehog", "elu", "favor")


def require_map(given: object) -> MapName:
    """The name of a map, or a function, if it is one."""
    if callable(given):
        return given
    if not isinstance(given, str):
        raise InvalidType(
            f"maps must be a name, a function or a list of them; got {type(given).__name__}."
        )
    return require_choice("maps", given, NAMES)


def make_map(
    name: MapName,
    heads: SoftmaxHeads,
    samples: Sequence[Sample],
    n_features: int,
    rng: np.random.Generator,
    bounded: bool = False,
) -> FeatureMap:
    """The feature map of this name for all heads.

    samples : queries (m, r) and keys (m, r) of each head on some tokens
    n_features : how many landmarks or random features there are; of ``taylor`` about how many
        features in all, since it takes products of the leading directions only
    bounded : whether key features of landmarks are divided by their sum, where no denominator of
        their own keeps exponentials in bounds
    """
    H, r = heads.n_heads, heads.W_Q.shape[2]
    if callable(name):
        empty = np.zeros((H, r, 0))
        return FeatureMap("callable", *(SideMap("callable", empty, name) for _ in range(2)))
    if name == "landmarks":
        found = [_landmarks(queries, keys, n_features, rng) for queries, keys in samples]
        towards_keys, towards_queries = (np.stack(each) for each in zip(*found, strict=True))
        key_kind = "softmax" if bounded else "exponential"
        return FeatureMap(
            name, SideMap("softmax", towards_keys), SideMap(key_kind, towards_queries)
        )
    if name == "taylor":
        query, key = zip(*(_leading(*each, n_features) for each in samples), strict=True)
        sides = (SideMap("quadratic", np.stack(each)) for each in (query, key))
        return FeatureMap(name, *sides)
    kind, matrix = _same_for_both(name, heads, n_features, rng)
    return FeatureMap(name, SideMap(kind, matrix), SideMap(kind, matrix))


def hedgehog(heads: SoftmaxHeads) -> SideMap:
    """softmax([x, -x]) of queries and keys as they were trained, before the scale."""
    one = np.broadcast_to(np.eye(heads.W_Q.shape[2]), (heads.n_heads, *[heads.W_Q.shape[2]] * 2))
    return SideMap("softmax", heads.stretch * np.concatenate([one, -one], axis=2))


def k_means(points: Array, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Which of ``count`` groups each of the points (m, r) belongs to, (m,); some may be empty."""
    centres = points[rng.choice(len(points), min(count, len(points)), replace=False)]
    nearest = np.zeros(len(points), dtype=np.intp)
    for _ in range(LLOYD_STEPS):
        apart = np.sum(centres * centres, axis=1) - 2.0 * points @ centres.T
        nearest = np.argmin(apart, axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        sizes = np.bincount(nearest, minlength=len(centres))
        held = sizes > 0
        centres[held] = sums[held] / sizes[held, None]
    return nearest


def _landmarks(
    queries: Array, keys: Array, count: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Matrices (r, count): representative keys for queries, and queries for keys."""
    found = [
        _representatives(points, _covariance(others), count, rng)
        for points, others in ((keys, queries), (queries, keys))
    ]
    return found[0].T, found[1].T


def _representatives(points: Array, metric: Array, count: int, rng: np.random.Generator) -> Array:
    """Means (count, r) of groups of points; repeated where there are fewer points than groups."""
    values, vectors = np.linalg.eigh(metric)
    moved = points @ (vectors * np.sqrt(np.maximum(values, 0.0)))
    groups = k_means(moved, count, rng)
    means = np.stack([points[groups == each].mean(axis=0) for each in np.unique(groups)])
    return means[np.arange(count) % len(means)]


def _covariance(points: Array) -> Array:
    """Second moments (r, r) about the mean; of a single point zero."""
    moved = points - points.mean(axis=0)
    return moved.T @ moved / len(points)


def _leading(queries: Array, keys: Array, n_features: int) -> tuple[Array, Array]:
    """Directions (r, k) of queries and of keys in which logits vary most.

    With C = cov of queries = Q^T Q and D = cov of keys, the SVD of C^(1/2) D^(1/2) orders pairs
    of directions by their share in the variance of the logits.
    """
    r = queries.shape[1]
    roots, inverses = zip(*(_root(each) for each in (queries, keys)), strict=True)
    left, sizes, right = np.linalg.svd(roots[0] @ roots[1])
    k = max(1, int((np.sqrt(8.0 * max(n_features - 1 - r, 1) + 1.0) - 1.0) / 2.0))
    k = min(k, r)
    scale = np.sqrt(sizes[:k])
    # In these coordinates q.k = sum_i a_i b_i, both sides of the same size.
    return inverses[0] @ left[:, :k] * scale, inverses[1] @ right[:k].T * scale


def _root(points: Array) -> tuple[Array, Array]:
    """The symmetric square root of the second moments, and its pseudo-inverse."""
    values, vectors = np.linalg.eigh(points.T @ points / len(points))
    roots = np.sqrt(np.maximum(values, 0.0))
    small = roots <= 1e-8 * max(float(roots[-1]), np.finfo(np.float64).tiny)
    inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=~small)
    return (vectors * roots) @ vectors.T, (vectors * inverse) @ vectors.T


def _same_for_both(
    name: str, heads: SoftmaxHeads, n_features: int, rng: np.random.Generator
) -> tuple[str, Any]:
    """Kind and matrices (H, r, m) of maps that see queries and keys alike."""
    H, _, r = heads.W_Q.shape
    # Hedgehog and elu are applied to projections as they were trained, before the scale.
    one = np.broadcast_to(np.eye(r), (H, r, r))
    if name == "linear":
        return "linear", one
    if name == "hedgehog":
        side = hedgehog(heads)
        return side.kind, side.matrix
    if name == "elu":
        return "elu", heads.stretch * one
    return "gaussian", rng.standard_normal((H, r, n_features))
