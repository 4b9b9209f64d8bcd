"""The steps that ``capacity.py`` measures: what runs, in which sizes, and what is promised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import polyattn as pa
from polyattn.features import summaries
from polyattn.form.layout import Layout
from polyattn.form.pairs import n_features, n_pairs
from polyattn.model import by_heads
from polyattn.sequences import as_batch
from polyattn.solve.iterative import solve_iterative
from polyattn.stats.rows import Rows

# Passes that the iteration is given, enough to outweigh what comes before; heads of the layer.
PASSES, HEADS = 20, 4


class Shape(NamedTuple):
    """N sequences of n tokens of d coordinates, e outputs."""

    N: int
    n: int
    d: int
    e: int

    @property
    def p(self) -> int:
        """How many features."""
        return n_features(self.d)

    @property
    def q(self) -> int:
        """How many sums of a summary."""
        return n_pairs(self.d)


class Sweep(NamedTuple):
    """Sizes of one letter; all others are those of ``base``."""

    letter: str
    base: Shape
    sizes: tuple[int, ...]

    def shapes(self) -> list[Shape]:
        return [self.base._replace(**{self.letter: size}) for size in self.sizes]


@dataclass(frozen=True)
class Step:
    """Something that takes time, with what its docstring promises.

    prepare : from a shape to the callable that is measured
    documented, quotes : where the promises stand, and how
    time, memory : the promises in short
    flops, numbers : from a shape to what it takes by them; ``numbers`` only where that is compared
    sweeps, quick : the sizes that are measured
    """

    prepare: Callable[[Shape], Callable[[], Any]]
    documented: Any
    quotes: tuple[str, ...]
    time: str
    memory: str
    flops: Callable[[Shape], float]
    numbers: Callable[[Shape], float] | None
    sweeps: tuple[Sweep, ...]
    quick: Sweep


def random_data(shape: Shape) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape[:3]), rng.standard_normal((shape.N, shape.e))


def make_summaries(shape: Shape) -> Callable[[], Any]:
    batch, layout = as_batch(random_data(shape)[0]), Layout.plain(shape.d)

    def read_all() -> None:
        for _ in summaries.SeenSequences(layout, batch).blocks():
            pass

    return read_all


def make_moments(shape: Shape) -> Callable[[], Any]:
    X, Y = random_data(shape)
    return lambda: pa.Moments(shape.d, shape.e).update(X, Y)


def solve_moments(shape: Shape) -> Callable[[], Any]:
    moments = pa.Moments(shape.d, shape.e).update(*random_data(shape))
    # With a ridge any sums are definite, so that few sequences suffice to prepare this.
    return partial(pa.fit, statistics=moments, ridge=1.0)


def iterate(shape: Shape) -> Callable[[], Any]:
    X, Y = random_data(shape)
    return lambda: solve_iterative(Rows.build(X, Y, pa.Form()), 0.0, PASSES)


def fit_by(solver: str, shape: Shape) -> Callable[[], Any]:
    return partial(pa.fit, *random_data(shape), solver=solver, try_exact=False)


def certify(shape: Shape) -> Callable[[], Any]:
    return partial(pa.certify, random_data(shape)[0], method="float")


def call_layer(shape: Shape) -> Callable[[], Any]:
    layer = pa.data.random_layer(shape.d, shape.e, n_heads=HEADS, mode="causal", random_state=0)
    return partial(layer, random_data(shape)[0])


# Memory is compared from where summaries are no longer kept: it grows with N until then.
STEPS = {
    "summaries": Step(
        make_summaries, summaries, ("O(n d^2) time per sequence", "memory of one block"),
        "N n d²", "one block",
        lambda s: s.N * s.n * s.d**2, None,
        (
            Sweep("N", Shape(0, 128, 16, 1), (2000, 4000, 8000, 16000)),
            Sweep("n", Shape(2000, 0, 16, 1), (128, 256, 512, 1024)),
            Sweep("d", Shape(2000, 128, 0, 1), (16, 32, 64)),
        ),
        Sweep("N", Shape(0, 64, 16, 1), (1000, 4000)),
    ),
    "moments": Step(
        make_moments, pa.Moments,
        ("about p^2/2 multiply-adds per predicted position", "memory p^2/4 numbers for wide"),
        "N (n d² + p²/2 + e p)", "p²/4",
        lambda s: s.N * (s.n * s.d**2 + s.p * (s.p / 2 + s.e)), lambda s: s.p**2 / 4,
        (
            Sweep("N", Shape(0, 8, 12, 1), (64000, 128000, 256000)),
            Sweep("n", Shape(4000, 0, 12, 1), (4, 16, 64, 256)),
            Sweep("d", Shape(2000, 8, 0, 1), (12, 16, 24, 32)),
            Sweep("e", Shape(4000, 8, 12, 0), (1, 4, 16, 64)),
        ),
        Sweep("d", Shape(1000, 8, 0, 1), (8, 16)),
    ),
    "solution": Step(
        solve_moments, pa.fit, ("p^3/3 for the solution",),
        "p³/3 + 2 e p²", "p²",
        lambda s: s.p**3 / 3 + 2 * s.p**2 * s.e, lambda s: s.p**2,
        (
            Sweep("d", Shape(512, 8, 0, 1), (12, 16, 20, 24)),
            Sweep("e", Shape(512, 8, 16, 0), (1, 4, 16, 64)),
        ),
        Sweep("d", Shape(512, 8, 0, 1), (8, 16)),
    ),
    "20 passes": Step(
        iterate, pa.fit, ("2 e p per position in each of some dozens of passes",),
        "N (4 e p per pass + q²)", "N q, while it fits",
        lambda s: s.N * (4 * PASSES * s.e * s.p + s.q**2), lambda s: s.N * s.q,
        (
            Sweep("N", Shape(0, 8, 16, 1), (8000, 16000, 32000, 64000)),
            Sweep("d", Shape(16000, 8, 0, 1), (12, 16, 24, 32)),
            Sweep("e", Shape(16000, 8, 16, 0), (4, 8, 16, 32)),
        ),
        Sweep("N", Shape(0, 8, 12, 1), (2000, 8000)),
    ),
    "kernel": Step(
        partial(fit_by, "dual"), pa.fit, ("N^2 (q + N/3) (dual)",),
        "N² (q + N/3)", "N² + N q",
        lambda s: s.N**2 * (s.q + s.N / 3), lambda s: s.N**2 + s.N * s.q,
        (
            Sweep("N", Shape(0, 8, 32, 1), (1000, 2000, 4000, 8000)),
            Sweep("d", Shape(2000, 8, 0, 1), (32, 64, 96)),
        ),
        Sweep("N", Shape(0, 8, 32, 1), (500, 1000)),
    ),
    "certificate": Step(
        certify, pa.certify,
        ("one pass of ``Moments`` and 2/3 p^3 flops", "numbers, whatever the number of sequences"),
        "N p²/2 + 2/3 p³", "3 p²",
        lambda s: s.N * s.p**2 / 2 + 2 / 3 * s.p**3, lambda s: s.p**2,
        (
            Sweep("N", Shape(0, 8, 12, 1), (64000, 128000, 256000)),
            Sweep("d", Shape(6000, 8, 0, 1), (12, 16, 20)),
        ),
        Sweep("N", Shape(0, 8, 8, 1), (2000, 8000)),
    ),
    "layer": Step(
        call_layer, by_heads, ("O(C (r_k + r_v) + r r_k + r_k r_v + r_v e) per token and head",),
        "N n H (2 C d + 2 d² + e d)", "its outputs",
        lambda s: s.N * s.n * (2 * by_heads.CHUNK * s.d + 2 * s.d**2 + s.d * s.e), None,
        (
            # Outputs of more than 32 MB: below, a token takes about half the time.
            Sweep("N", Shape(0, 64, 16, 16), (8000, 16000, 32000)),
            Sweep("n", Shape(8000, 0, 16, 16), (64, 128, 256)),
            Sweep("d", Shape(8000, 64, 0, 16), (16, 32, 64)),
            Sweep("e", Shape(8000, 64, 16, 0), (16, 32, 64)),
        ),
        Sweep("N", Shape(0, 64, 8, 8), (250, 1000)),
    ),
}  # fmt: skip

FITS = {
    "primal": (Shape(40000, 100, 8, 1), Shape(20000, 20, 12, 1), Shape(8000, 20, 16, 8)),
    "direct": (Shape(2000, 20, 8, 1), Shape(400, 20, 12, 1)),
    "dual": (Shape(1000, 20, 16, 1), Shape(2000, 20, 32, 1), Shape(4000, 10, 48, 8)),
    "iterative": (Shape(20000, 20, 16, 1), Shape(40000, 10, 24, 1), Shape(40000, 10, 16, 8)),
}
QUICK_FITS = {"primal": (Shape(2000, 10, 8, 1),)}
