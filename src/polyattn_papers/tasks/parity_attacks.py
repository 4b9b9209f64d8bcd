"""Attacks on learning parity with noise, and the learners of parity layers that they are.

Samples are bits (N, n) with labels (N,).  Each attack returns the hidden set that it found, or
None, and its work: how many sets, halves of sets, or rows it has formed.  Work is counted, so that
growth does not depend on the machine; times are measured beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations, islice
from math import ceil, comb, log, log2

import numpy as np
from numpy.typing import NDArray

from polyattn.model import SoftmaxAttention
from polyattn.softmax import parity_layer

Bits = NDArray[np.bool_]
Words = NDArray[np.uint64]

# Sets that are formed at once.
BLOCK = 1 << 14

# Failure that the number of samples allows, and that the number of rounds does.
FAILURE, ROUNDS_FAILURE = 0.01, 1e-8

# Sharpness of the layer that a learner returns: its outputs are signs to 1e-16.
BETA = 20.0


@dataclass(frozen=True, eq=False)
class NoisyParity:
    """Samples A (N, n) with labels b (N,): the parity of n_hidden coordinates, with noise."""

    A: Bits
    b: Bits
    n_hidden: int
    noise: float

    @property
    def n_bits(self) -> int:
        """Coordinates of a sample."""
        return self.A.shape[1]

    @classmethod
    def draw(
        cls,
        n_samples: int,
        n_bits: int,
        hidden: tuple[int, ...],
        noise: float,
        rng: np.random.Generator,
    ) -> NoisyParity:
        """Uniform bits, and their parity on the hidden set with noise."""
        A = rng.random((n_samples, n_bits)) < 0.5
        parity = np.logical_xor.reduce(A[:, hidden], axis=1)
        return cls(A, parity ^ (rng.random(n_samples) < noise), len(hidden), noise)


@dataclass(frozen=True)
class Attack:
    """What an attack came to."""

    hidden: tuple[int, ...] | None
    work: int
    seconds: float


def samples_needed(n_bits: int, n_hidden: int, noise: float) -> int:
    """8 ln(C(n, s) / FAILURE) / (1 - 2 noise)^2: no wrong set agrees as well as the secret.

    By Hoeffding's inequality, for each wrong set and for the secret itself, around the middle of
    noise and 1/2.
    """
    return ceil(8.0 * log(comb(n_bits, n_hidden) / FAILURE) / (1.0 - 2.0 * noise) ** 2)


def by_elimination(problem: NoisyParity) -> Attack:
    """Gaussian elimination modulo 2: the secret without noise, whatever its size.

    With noise the equations contradict each other, or have a wrong solution; None, or that.
    """
    start, work = time.perf_counter(), 0
    n = problem.n_bits
    pivots: dict[int, int] = {}
    for bits, label in zip(problem.A, problem.b, strict=True):
        row = int("".join("1" if bit else "0" for bit in (label, *bits[::-1])), 2)
        work += 1
        for place, pivot in pivots.items():
            if row >> place & 1:
                row, work = row ^ pivot, work + 1
        inside = row & ((1 << n) - 1)
        if inside:
            new = (inside & -inside).bit_length() - 1
            pivots = {p: each ^ row if each >> new & 1 else each for p, each in pivots.items()}
            pivots[new] = row
        elif row:
            return Attack(None, work, time.perf_counter() - start)
    hidden = tuple(sorted(place for place, row in pivots.items() if row >> n & 1))
    found = hidden if len(pivots) == n else None
    return Attack(found, work, time.perf_counter() - start)


def by_all_sets(problem: NoisyParity) -> Attack:
    """Every one of C(n, s) sets against all samples."""
    start = time.perf_counter()
    columns, label = _packed(problem)
    best, least, work = None, len(problem.b) + 1, 0
    for sets in _blocks(problem.n_bits, problem.n_hidden):
        wrong = _disagreements(columns, label, sets)
        work += len(sets)
        place = int(np.argmin(wrong))
        if wrong[place] < least:
            best, least = tuple(sets[place].tolist()), int(wrong[place])
    return Attack(best, work, time.perf_counter() - start)


def by_transform(problem: NoisyParity) -> Attack:
    """All 2^n sets at once by the fast Walsh-Hadamard transform; the best one of s coordinates."""
    start = time.perf_counter()
    n, A, b = problem.n_bits, problem.A, problem.b
    table = np.bincount(A @ (1 << np.arange(n)), 1.0 - 2.0 * b, minlength=1 << n)
    for place in range(n):
        pairs = table.reshape(-1, 2, 1 << place)
        table = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
    sizes = np.bitwise_count(np.arange(1 << n))
    best = int(np.argmax(np.where(sizes == problem.n_hidden, table, -np.inf)))
    hidden = tuple(place for place in range(n) if best >> place & 1)
    return Attack(hidden, n << n, time.perf_counter() - start)


def by_halves(problem: NoisyParity, seed: int = 0) -> Attack:
    """Meet in the middle: halves of the set whose parities agree on a few random samples.

    On samples without noise the parity of one half is that of the other, plus b.  With l samples
    in a round, l about the logarithm of the number of halves, that happens in (1 - noise)^-l
    rounds on average; halves that agree on them are found by sorting, and tested on all samples.
    """
    start, work = time.perf_counter(), 0
    rng = np.random.default_rng(seed)
    n, A, b = problem.n_bits, problem.A, problem.b
    n_hidden, large = problem.n_hidden, (problem.n_hidden + 1) // 2
    columns, label = _packed(problem)
    first, second = (np.concatenate(list(_blocks(n, size))) for size in (large, n_hidden - large))
    length = min(ceil(log2(comb(n, large))) + 1, len(b), 63)
    most_wrong = 0.5 * (problem.noise + 0.5) * len(b)
    for _ in range(_rounds(problem.noise, length)):
        chosen = rng.permutation(len(b))[:length]
        keys, key = A[chosen].T @ (1 << np.arange(length)), b[chosen] @ (1 << np.arange(length))
        left = np.bitwise_xor.reduce(keys[first], axis=1) ^ key
        right = np.bitwise_xor.reduce(keys[second], axis=1, initial=0)
        work += len(left) + len(right)
        for sets in _matches(first, left, second, right):
            work += len(sets)
            wrong = _disagreements(columns, label, sets)
            place = int(np.argmin(wrong))
            if wrong[place] <= most_wrong:
                hidden = tuple(sorted(sets[place].tolist()))
                return Attack(hidden, work, time.perf_counter() - start)
    return Attack(None, work, time.perf_counter() - start)


def layer_learner(
    attack: Callable[[NoisyParity], Attack], n_hidden: int, noise: float
) -> Callable[[NDArray[np.float64], NDArray[np.float64]], SoftmaxAttention]:
    """The other direction: an attack on LPN learns noisy parity layers, from mixed sequences."""

    def learn(X: NDArray[np.float64], Y: NDArray[np.float64]) -> SoftmaxAttention:
        mixed = np.abs(X[:, :, -1].sum(axis=1)) < X.shape[1]
        n = X.shape[2] - 1
        bits, labels = X[mixed, :, :n].reshape(-1, n) > 0, Y[mixed].ravel() < 0
        found = attack(NoisyParity(bits, labels, n_hidden, noise))
        hidden = found.hidden if found.hidden is not None else tuple(range(n_hidden))
        return parity_layer(hidden, n, 0, n + 1, BETA, n_outputs=1)

    return learn


def _rounds(noise: float, length: int) -> int:
    """So many rounds that one of them has no noise, but for probability ROUNDS_FAILURE."""
    chance = (1.0 - noise) ** length
    return 1 if chance == 1.0 else ceil(log(ROUNDS_FAILURE) / log(1.0 - chance))


def _matches(
    first: NDArray[np.intp], left: NDArray, second: NDArray[np.intp], right: NDArray
) -> Iterator[NDArray[np.intp]]:
    """Unions of disjoint halves with equal keys, in blocks (count, s)."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    low, high = (np.searchsorted(ordered, left, side) for side in ("left", "right"))
    counts = high - low
    places = np.flatnonzero(counts)
    for part in np.array_split(places, max(1, ceil(int(counts.sum()) / BLOCK))):
        times = counts[part]
        own = np.repeat(part, times)
        within = np.arange(len(own)) - np.repeat(np.cumsum(times) - times, times)
        sets = np.concatenate([first[own], second[order[low[own] + within]]], axis=1)
        ascending = np.sort(sets, axis=1)
        sets = sets[np.all(np.diff(ascending, axis=1) > 0, axis=1)]
        if len(sets):
            yield sets


def _packed(problem: NoisyParity) -> tuple[Words, Words]:
    """Columns (n, words) and labels (words,), 64 samples in a word."""
    rest = -len(problem.b) % 64
    bits = np.pad(np.column_stack([problem.A, problem.b]), ((0, rest), (0, 0))).T
    words = np.packbits(np.ascontiguousarray(bits), axis=1).view(np.uint64)
    return words[:-1], words[-1]


def _disagreements(columns: Words, label: Words, sets: NDArray[np.intp]) -> NDArray[np.int64]:
    """On how many samples the parity of each set, (count, s), is not the label."""
    parity = np.bitwise_xor.reduce(columns[sets], axis=1) ^ label
    return np.asarray(np.bitwise_count(parity).sum(axis=1, dtype=np.int64))


def _blocks(n: int, size: int) -> Iterator[NDArray[np.intp]]:
    """All sets of a size, (count, size) at a time; the empty set if that is its size."""
    every = combinations(range(n), size)
    while some := list(islice(every, BLOCK)):
        yield np.fromiter(chain.from_iterable(some), np.intp, len(some) * size).reshape(
            len(some), size
        )
