"""What solvers cost: seconds of one core and numbers in memory, for problems of given size.

Work is counted in multiply-adds, and each kind has a measured speed beside that of a large matrix
product (``benchmarks/cost_model.py`` measures them all again).  Estimates hold to within a factor
of about three on one core of a machine of 2026; their ratios, by which solvers are chosen, hold
better than that.  Data that depend on each other, or stall an iteration, take longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyattn.solve.normal_equations import MAX_PASSES
from polyattn.sources.stretches import MOST_STRETCHES

# Seconds of one core for a multiply-add of a large matrix product in double precision.
MULTIPLY_ADD = 3e-11

# How many times as long a multiply-add of other kinds takes: sums of products that are paired, the
# solution of definite equations, orthogonal factors, singular values of wide features, eigenvalues,
# kernels with their factor, a pass of the iteration.
PAIRED, DEFINITE, ORTHOGONAL, SINGULAR, EIGENVALUES, KERNEL, PASS = 1.2, 1.2, 3, 30, 5, 2, 1

# Seconds to summarise a token, and for each product of two of its numbers.
TOKEN, TOKEN_PRODUCT = 5e-8, 3e-10

# Seconds per byte that is read, or sent from one machine to another; and for a message.
READ_BYTE, SENT_BYTE, MESSAGE = 1e-9, 1e-9, 5e-3


@dataclass(frozen=True)
class Size:
    """A problem: n rows, p features of m sums and r queries, e outputs; tokens, where known."""

    n: int
    p: int
    m: int
    r: int
    e: int
    n_tokens: int = 0  # of all sequences together
    n_dims: int = 0
    n_token_products: int = 0  # that the sums take for each token

    @property
    def n_summaries(self) -> int:
        """Numbers of all summaries."""
        return self.n * (self.m + self.r + self.e)


@dataclass(frozen=True)
class Work:
    """What a solver does after the summaries.

    shared : multiply-adds that any number of workers share
    alone : multiply-adds of one of them
    n_sums, sum_numbers : how often partial sums are added up, and of how many numbers each
    """

    shared: float
    alone: float
    n_sums: float = 0.0
    sum_numbers: float = 0.0


def primal_work(size: Size) -> Work:
    """Sums of p x p numbers, half of which are pairs of others, and one definite system."""
    n, p = size.n, size.p
    return Work(PAIRED * n * p**2 / 4, DEFINITE * p**3 / 3, 1, p**2 / 4)


def direct_work(size: Size) -> Work:
    """A triangular factor of many rows, or singular values of few."""
    n, p = size.n, size.p
    if n >= p:
        return Work(ORTHOGONAL * n * p**2, DEFINITE * p**3 / 3, 1, p**2 / 2)
    return Work(0.0, SINGULAR * n**2 * p)


def dual_work(size: Size) -> Work:
    """A kernel and its factor; as many rows as features make it singular: its eigenvalues then."""
    n, m, p = size.n, size.m, size.p
    singular = EIGENVALUES * n**3 if n >= p else 0.0
    return Work(0.0, KERNEL * (n**2 * m / 2 + n**3 / 6) + singular)


def iterative_work(size: Size) -> Work:
    """Passes for all outputs and a random step, after the second moments of sums and queries."""
    n, p, m, r, e = size.n, size.p, size.m, size.r, size.e
    passes = min(expected_passes(n, p), MAX_PASSES)
    return Work(
        PASS * passes * 2.0 * n * p * (e + 1) + PAIRED * n * (m**2 + r**2) / 2,
        EIGENVALUES * (m**3 + r**3) + 2 * passes * p * (m + r) * (e + 1),
        passes,
        float(p * (e + 1)),
    )


def expected_passes(n_rows: float, n_features: float) -> float:
    """Passes of the iteration; infinite for as many rows as features.

    The spectrum of whitened independent features lies within (1 +- s)^2, s^2 = p/N or its inverse
    [Marchenko, Pastur 1967].  Conjugate gradients then take 14 (1 + s)/(1 - s) passes to 1e-12;
    features that depend on each other take about twice as many.
    """
    root = (min(n_rows, n_features) / max(n_rows, n_features)) ** 0.5
    return 30.0 * (1.0 + root) / (1.0 - root) if root < 1.0 else float("inf")


def steps(
    size: Size, work: Work, n_workers: int, rereads_summaries: bool = False
) -> dict[str, float]:
    """Seconds of each step on so many workers of one core: they share all but the solution.

    Each adds up stretches of the data, of which there are MOST_STRETCHES: more workers have nothing
    to do.  One process takes up the sum of each.

    rereads_summaries : they do not fit into memory, and each sum makes them anew or reads a file
    """
    reading = READ_BYTE * 8 * size.n_tokens * size.n_dims
    summarising = size.n_tokens * (TOKEN + TOKEN_PRODUCT * size.n_token_products)
    again = 0.0
    if rereads_summaries:
        again = READ_BYTE * 8 * size.n_summaries
        if size.n_tokens:
            again = min(again, reading + summarising)
    share, sent = 1.0, 0.0
    if n_workers > 1:
        share = -(-MOST_STRETCHES // n_workers) / MOST_STRETCHES
        sent = work.n_sums * MOST_STRETCHES * (MESSAGE + SENT_BYTE * 8 * work.sum_numbers)
    return {
        "reading": share * reading,
        "summaries": share * summarising,
        "rereading": share * work.n_sums * again,
        "sums": share * MULTIPLY_ADD * work.shared,
        "exchange": sent,
        "solution": MULTIPLY_ADD * work.alone,
    }
