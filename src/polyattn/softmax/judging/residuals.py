"""Is what a layer leaves unexplained noise?  Tests that a wrong layer fails.

A layer stuck in a local minimum leaves a residual that is a function of the input.  Parities look
like noise to every simple statistic, but other functions do not share the properties of independent
normal noise of one size.  Each test is a z-score: about N(0, 1) for noise.

    generalises   held-out residuals are not larger than those of training
    tails         fourth moment of a single residual (3 sigma^4)
    skew          third moment (0)
    sizes         the residuals of one sequence have the same size as those of another
    outputs       different outputs of one row are uncorrelated

Nor is noise a function of the tokens, or of the outputs: residuals are regressed on families of
functions that a softmax layer of these heads does not contain.

    linear     the query token and the mean of the tokens that it attends to
    products   products of two coordinates of the query token
    curves     of a row's query and mean: tanh of random combinations
    bends      squares, cubes and signed squares of the fitted output itself

Of independent noise of standard deviation sigma each explains at most sigma^2 times a chi-square
number with one degree for each function and output: a z-score that noise of any distribution
passes, up to the central limit theorem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from polyattn.softmax.examples import Examples, Matrix
from polyattn.softmax.polish.projection import Projection, patterns, seen

# Scores beyond this are not chance: five tests raise one false alarm in 500.
ALARM = 3.8

# Rows that are looked at, rows for each function at least, and random combinations.
MOST_ROWS, ROWS_FOR_EACH, N_CURVES = 20_000, 8, 24

# Functions of norm one that are nearer to the others than this say nothing new.
NEW = 1e-6


@dataclass(frozen=True)
class Residuals:
    """What a layer leaves of the targets, sequence by sequence: arrays (r_i, e)."""

    sequences: tuple[Matrix, ...]
    size_of_targets: float

    @property
    def values(self) -> Matrix:
        """All residuals (rows, e)."""
        return np.concatenate(self.sequences)

    @property
    def power(self) -> float:
        """The sum of squares."""
        return float(sum(np.vdot(one, one) for one in self.sequences))

    @property
    def error(self) -> float:
        """||residuals|| / ||targets||."""
        return float(np.sqrt(self.power) / self.size_of_targets) if self.size_of_targets else 0.0

    def powers(self) -> Matrix:
        """Sums of squares of every sequence."""
        return np.array([np.vdot(one, one) for one in self.sequences])


def residuals(examples: Examples, projection: Projection) -> Residuals:
    """Targets minus outputs of the heads of ``projection``."""
    sequences: list[Matrix] = []
    for block in examples.blocks():
        outputs = seen(block, projection.attn) @ projection.stacked_value
        sequences.extend(block.targets - outputs.reshape(block.targets.shape))
    return Residuals(tuple(sequences), float(np.sqrt(examples.power)))


def noise_scores(training: Residuals, held_out: Residuals, n_unknowns: int) -> dict[str, float]:
    """z-scores of all tests, by name; the larger, the less like noise."""
    n_training, n_held_out = training.values.size, held_out.values.size
    freedom = max(n_training - n_unknowns, 1)
    if min(training.power, held_out.power) == 0.0:
        return {}
    # A held-out residual has the variance of the noise times (1 + leverage of the unknowns).
    growth = held_out.power / n_held_out / (training.power / freedom * (1 + n_unknowns / freedom))
    both = np.concatenate(
        [part.values / np.sqrt(part.power / part.values.size) for part in (held_out, training)]
    )
    # Squared correlations between outputs, of which a share of the rows is independent.
    scaled = both / np.sqrt(np.maximum(np.mean(both**2, axis=0), np.finfo(np.float64).tiny))
    n_rows, n_outputs = both.shape
    above = (scaled.T @ scaled / n_rows)[np.triu_indices(n_outputs, 1)]
    n_independent = (n_held_out + freedom) / both.size * n_rows
    correlated = n_independent * float(np.sum(above**2))
    # Mean squares of sequences: each term has mean 1 and variance 2 + 12 / count.
    total, variance = 0.0, 0.0
    for part in (held_out, training):
        counts = np.array([one.size for one in part.sequences], dtype=float)
        powers = part.powers() * (counts.sum() / part.power)
        total += float(np.sum((powers - counts) ** 2 / (2 * counts) - 1))
        variance += float(np.sum(2 + 12 / counts))
    return {
        "generalises": float((growth - 1) / np.sqrt(2 / n_held_out + 2 / freedom)),
        "tails": abs(float((np.mean(both**4) - 3) / np.sqrt(24 / both.size))),
        "skew": abs(float(np.mean(both**3) / np.sqrt(15 / both.size))),
        "sizes": total / float(np.sqrt(variance)),
        "outputs": chi_square_score(correlated, above.size if n_rows > 2 else 0),
    }


def alarms(scores: dict[str, float]) -> tuple[str, ...]:
    """The tests that noise would not fail."""
    return tuple(name for name, score in scores.items() if score > ALARM)


def chi_square_score(total: float, freedom: int) -> float:
    """z-score of a chi-square sum: its cube root is nearly normal (Wilson and Hilferty)."""
    if freedom == 0:
        return 0.0
    width = 2 / (9 * freedom)
    return float((np.cbrt(total / freedom) - (1 - width)) / np.sqrt(width))


def gain_score(before: Residuals, after: Residuals) -> float:
    """z-score of the fall in held-out squares from one layer to another, sequence by sequence."""
    gains = before.powers() - after.powers()
    spread = gains.std(ddof=1) * np.sqrt(len(gains)) if len(gains) > 1 else np.inf
    total = float(gains.sum())
    if spread == 0.0:
        return 0.0 if total <= 0.0 else np.inf
    return float(total / spread)


def structure_scores(
    examples: Examples, left: Residuals, projection: Projection, sigma: float
) -> dict[str, float]:
    """z-scores by family; families with too many functions for the rows are left out.

    Cost: O(rows k^2) for k functions of a family.
    """
    # Query beside mean token (rows, 2 d), and fitted outputs (rows, e), in the order of left.
    width, n_rows = examples.width, 0
    parts = []
    for block in examples.blocks(MOST_ROWS):
        # The mean of the tokens that each query attends to: a head of zero attention.
        means = patterns(block, np.zeros((width, width))) @ block.keys
        both = np.concatenate([block.queries, means], axis=2).reshape(-1, 2 * width)
        parts.append((both, seen(block, projection.attn) @ projection.stacked_value))
        n_rows += block.n_rows
        if n_rows >= MOST_ROWS:
            break
    tokens, outputs = (np.concatenate(column) for column in zip(*parts, strict=True))
    residual = left.values[: len(tokens)] / sigma
    first, second = np.triu_indices(width)
    # Always the same combinations: the same heads are judged alike.
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((tokens.shape[1], N_CURVES)) / np.sqrt(width)
    families = {
        "linear": np.concatenate([np.ones((len(tokens), 1)), tokens], axis=1),
        "products": tokens[:, first] * tokens[:, second],
        "curves": np.tanh(tokens @ directions + rng.standard_normal(N_CURVES)),
    }
    scores = {}
    for name, functions in families.items():
        if functions.shape[1] * ROWS_FOR_EACH <= len(tokens):
            basis = _orthonormal(functions)
            explained = float(np.sum((basis.T @ residual) ** 2))
            scores[name] = chi_square_score(explained, basis.shape[1] * residual.shape[1])
    # Each output's residuals against curves of that output alone.
    explained, freedom = 0.0, 0
    for fitted, column in zip(outputs.T, residual.T, strict=True):
        basis = _orthonormal(np.stack([fitted**2, fitted**3, fitted * np.abs(fitted)], axis=1))
        explained += float(np.sum((basis.T @ column) ** 2))
        freedom += basis.shape[1]
    scores["bends"] = chi_square_score(explained, freedom)
    return scores


def _orthonormal(functions: Matrix) -> Matrix:
    """Orthonormal columns with the same span."""
    sizes = np.linalg.norm(functions, axis=0)
    units = functions / np.where(sizes > 0, sizes, 1.0)
    basis, triangle, _ = qr(units, mode="economic", pivoting=True, check_finite=False)
    return np.asarray(basis[:, np.abs(np.diag(triangle)) > NEW], dtype=np.float64)
