"""Rotary positions: the frequencies and planes in which queries and keys turn, from a few offsets.

A logit of a query token x' and a token y, o places before it, is x' A(o) y with

    A(o) = W_Q R(o) W_K^T,      R(o): plane i turned by o f_i.

In [y, x', ..., x'] with o copies of a query token that is tiny beside y (and y as much larger than
others) all logits vanish but that of y, and head i gives y the weight sigmoid(x' A_i(o) y - log o).
So one offset is learned like a layer without positions, and values with it.  Further offsets need
no unmixing: column spaces, row spaces and values are known, and A(o) = U K(o) W^T has few unknowns.

    K(2) K(1)^{-1} = (U^T W_Q) R(1) (U^T W_Q)^{-1}

has the eigenvalues exp(+-j f_i): frequencies, and eigenvectors a + j b whose parts span the planes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.model.rotary import Turns
from polyattn.model.softmax import SoftmaxAttention
from polyattn.softmax.queries.findings import HeadsAt
from polyattn.softmax.queries.pairs import Pairs

# How much larger differences are than query tokens, and these than their geometric mean: terms
# that are quadratic in query tokens are smaller than linear ones by the square of it.
RATIO = 2.0**25

NOT_TURNED = (
    "Positions matter, but as far as can be seen they do not turn queries and keys: weights of a "
    "token two places back are not those of one place back, turned. Positions may be added to "
    "logits or tokens, heads may have more planes than tokens have coordinates, or biases may be "
    "too large beside them."
)

# Offsets beside one that are measured: the next, and one that shows slow planes.
OFFSETS = (2, 16)

# Query tokens have this norm, in calibrated sizes.
POINT_SIZE = 1.5

# Singular values of an A(1) below this, relative to the largest, are zero; or what noise explains,
# or doubt about single differences.
RANK_FLOOR, NOISE_FLOOR, DOUBTS = 1e-9, 3e4, 1e3

# How far from the unit circle eigenvalues may be, or as far as noise explains.
ON_CIRCLE, NOISE_ON_CIRCLE = 1e-5, 1e6

# Frequencies of two heads that agree up to this are the same one.
SAME = 1e-7


@dataclass(frozen=True)
class Turning:
    """Queries and keys (H, d, r) of all heads, frequencies (r/2,) of their planes.

    doubt : how far measured A(o) are from these, relative to their size
    """

    query: NDArray[np.float64]
    key: NDArray[np.float64]
    frequencies: NDArray[np.float64]
    doubt: float

    def layer(self, value: NDArray, mode: str, bias: bool) -> SoftmaxAttention:
        """The layer of these heads with their values (H, D, e)."""
        return SoftmaxAttention((self.query, self.key), value, mode, bias, self.frequencies)


def measure_turning(pairs: Pairs, heads: list[HeadsAt]) -> Turning | None:
    """The planes and frequencies of heads whose A(1) and values are known.

    None where A(2) is not A(1) turned.
    Cost: (3 r / 2 + 4)^2 queries for each of OFFSETS, r the largest rank of a head.
    """
    inverse = np.linalg.pinv(np.stack([at.delta for at in heads]))
    first = np.einsum("dj,jhr->hrd", inverse, np.stack([at.columns for at in heads]))
    value = np.einsum("dj,jhe->hde", inverse, np.stack([at.values for at in heads]))
    left, spectrum, right = np.linalg.svd(first)
    doubt = DOUBTS * max(at.doubt for at in heads)
    floor = max(RANK_FLOOR, NOISE_FLOOR * pairs.total.noise, doubt) * spectrum[:, :1]
    ranks = np.maximum(np.sum(spectrum > floor, axis=1), 1)
    spaces = [
        (left[head, :, :rank], right[head, :rank].T) for head, rank in enumerate(ranks.tolist())
    ]
    cores = {1: [U.T @ A @ W for A, (U, W) in zip(first, spaces, strict=True)]}
    for offset in OFFSETS:
        cores[offset] = _measure_cores(pairs, value, spaces, offset)
    by_head = [{o: each[head] for o, each in cores.items()} for head in range(len(ranks))]
    found = [Planes.of(each, pairs.total.noise) for each in by_head]
    planes = [each for each in found if each is not None]
    if len(planes) < len(found):
        return None
    frequencies, places = _common(planes)
    query, key = (np.zeros((len(first), n, 2 * len(frequencies))) for n in first.shape[1:])
    doubts = []
    for head, (plane, place) in enumerate(zip(planes, places, strict=True)):
        U, W = spaces[head]
        settled = plane.with_frequencies(frequencies[place])
        both = np.concatenate([place, place + len(frequencies)])
        query[head][:, both] = U @ settled.query
        key[head][:, both] = W @ settled.key
        doubts.append(settled.misfit(by_head[head]))
    if pairs.bias:
        key = np.concatenate([key, _key_biases(pairs, value, query, key, frequencies)], axis=1)
    return Turning(query, key, frequencies, max(doubts))


def _key_biases(
    pairs: Pairs, value: NDArray, query: NDArray, key: NDArray, frequencies: NDArray
) -> NDArray[np.float64]:
    """The last rows (H, 1, r) of W_K: zero in planes that do not turn, where nobody sees them.

    A token before the query, and the same, has the logit x' W_Q (R(1) - 1) (x' W_K + bias)^T more
    than the query itself.  Cost: 4 r + 16 queries.
    """
    points = pairs.random_points(2 * query.shape[2] + 8, POINT_SIZE)
    deltas = pairs.random_delta()[None]
    rows, values = pairs.rows(points), np.einsum("bd,hde->bhe", deltas, value)
    own = pairs.own_logits(points, deltas, values)[0]
    found = np.empty((len(query), 1, query.shape[2]))
    for head, (Q, K) in enumerate(zip(query, key, strict=True)):
        more = rows @ (turned(Q, frequencies, 1) - Q)
        left = own[:, head] - np.sum(more * (points @ K), axis=1)
        # Column sizes are those of frequencies, some of which are small.
        size = np.maximum(np.linalg.norm(more, axis=0), np.finfo(float).tiny)
        found[head, 0] = np.linalg.lstsq(more / size, left, rcond=1e-12)[0] / size
    return found * (frequencies != 0)[np.arange(query.shape[2]) % len(frequencies)]


def _measure_cores(
    pairs: Pairs, value: NDArray, spaces: list[tuple[NDArray, NDArray]], offset: int
) -> list[NDArray[np.float64]]:
    """K(o) of every head, for A(o) = U K(o) W^T with ``spaces`` (U, W)."""
    rank = max(U.shape[1] for U, _ in spaces)
    n_tokens = rank + rank // 2 + 4
    points = pairs.random_points(n_tokens, POINT_SIZE)
    rows = pairs.rows(points)
    deltas = np.stack([pairs.random_delta() for _ in range(n_tokens)])
    values = np.einsum("bd,hde->bhe", deltas, value)
    logits = pairs.logits(points, deltas, values, resting=offset)
    return [
        np.linalg.pinv(rows @ U) @ logits[:, :, head].T @ np.linalg.pinv(deltas @ W).T
        for head, (U, W) in enumerate(spaces)
    ]


@dataclass(frozen=True)
class Planes:
    """The planes of one head, in coordinates of its spaces: K(o) = query R(o) key^T.

    query, key (r, 2 p): columns i and i + p span plane i; frequencies (p,)
    """

    query: NDArray[np.float64]
    key: NDArray[np.float64]
    frequencies: NDArray[np.float64]

    @classmethod
    def of(cls, cores: dict[int, NDArray], noise: float) -> Planes | None:
        """Planes of K(1) and K(2); frequencies are made precise by the farthest offset.

        None where eigenvalues are not on the unit circle.
        """
        turn = np.linalg.solve(cores[1].T, cores[2].T).T
        values, vectors = np.linalg.eig(turn)
        if float(np.abs(np.abs(values) - 1).max()) > max(ON_CIRCLE, NOISE_ON_CIRCLE * noise):
            return None
        above = np.flatnonzero(values.imag > 0)
        real = np.flatnonzero(values.imag == 0)
        pairs = [(vectors[:, i].real, vectors[:, i].imag, np.angle(values[i])) for i in above]
        # Eigenvalues that are real are planes that do not turn, or by half a turn; one may be left.
        nothing = np.zeros(len(turn))
        for sign in (1.0, -1.0):
            alike = [vectors[:, i].real for i in real if values[i].real * sign > 0]
            alike += [nothing] * (len(alike) % 2)
            pairs += [
                (a, b, 0.0 if sign > 0 else np.pi)
                for a, b in zip(alike[::2], alike[1::2], strict=True)
            ]
        pairs.sort(key=lambda plane: -plane[2])
        query = np.stack([a for a, _, _ in pairs] + [b for _, b, _ in pairs], axis=1)
        rough = cls(query, query, np.array([frequency for _, _, frequency in pairs]))
        rough = rough.with_core(cores[1])
        far = max(cores)
        return rough.refined(cores[far], far).with_core(cores[1])

    def with_core(self, core: NDArray) -> Planes:
        """The keys that give K(1), with planes of equal size in queries and keys."""
        key = (turned(np.linalg.pinv(self.query).T, self.frequencies, 1).T @ core).T
        n_planes = len(self.frequencies)
        sizes = [
            np.sqrt(np.sum(each.reshape(len(core), 2, n_planes) ** 2, axis=(0, 1)))
            for each in (self.query, key)
        ]
        balance = np.tile(np.sqrt(sizes[1] / np.maximum(sizes[0], 1e-300)), 2)
        balance = np.where(balance > 0, balance, 1.0)
        return Planes(self.query * balance, key / balance, self.frequencies)

    def refined(self, core: NDArray, offset: int) -> Planes:
        """Frequencies from K(o) of a larger offset, each the one nearest to the present one."""
        n = len(self.frequencies)
        block = np.linalg.pinv(self.query) @ core @ np.linalg.pinv(self.key).T
        near = np.arange(n)
        cosine = block[near, near] + block[near + n, near + n]
        sine = block[near, near + n] - block[near + n, near]
        angles = np.arctan2(sine, cosine)
        turns = np.rint((offset * self.frequencies - angles) / (2 * np.pi))
        refined = (angles + 2 * np.pi * turns) / offset
        still = np.isin(self.frequencies, (0.0, np.pi))
        return Planes(self.query, self.key, np.where(still, self.frequencies, refined))

    def with_frequencies(self, frequencies: NDArray) -> Planes:
        """The same planes with frequencies that differ by rounding; K(1) stays as it is."""
        core = turned(self.query, self.frequencies, 1) @ self.key.T
        return Planes(self.query, self.key, frequencies).with_core(core)

    def misfit(self, cores: dict[int, NDArray]) -> float:
        """The largest deviation of K(o) from what was measured, relative to the size of K(1)."""
        left = [
            np.linalg.norm(turned(self.query, self.frequencies, offset) @ self.key.T - core)
            for offset, core in cores.items()
        ]
        return float(max(left) / np.linalg.norm(cores[1]))


def turned(query: NDArray, frequencies: NDArray, offset: int) -> NDArray[np.float64]:
    """Columns (.., 2 p) of queries, plane i turned by offset * frequencies[i]."""
    return Turns.of(frequencies, 1, offset).applied(query)


def _common(planes: list[Planes]) -> tuple[NDArray[np.float64], list[NDArray[np.intp]]]:
    """One array of frequencies, falling, and where those of each head are in it.

    Heads that have the same planes share them; others get planes of their own beside these.
    """
    own = [each.frequencies for each in planes]
    if len({len(each) for each in own}) == 1:
        stacked = np.stack(own)
        mean = stacked.mean(axis=0)
        if float(np.abs(stacked - mean).max()) <= SAME:
            return mean, [np.arange(len(mean))] * len(own)
    everything = np.sort(np.concatenate(own))[::-1]
    begins = np.concatenate([[True], np.diff(everything) < -SAME])
    group = np.cumsum(begins) - 1
    means = np.bincount(group, everything) / np.bincount(group)
    counts = [
        np.bincount([int(np.argmin(np.abs(means - f))) for f in each], minlength=len(means))
        for each in own
    ]
    # A frequency that one head has several times is there as often.
    often = np.max(counts, axis=0)
    starts = np.concatenate([[0], np.cumsum(often)[:-1]])
    places = []
    for each in own:
        taken, place = np.zeros(len(means), dtype=int), []
        for frequency in each:
            at = int(np.argmin(np.abs(means - frequency)))
            place.append(starts[at] + taken[at])
            taken[at] += 1
        places.append(np.array(place, dtype=np.intp))
    return np.repeat(means, often), places
