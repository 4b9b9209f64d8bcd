"""The outcomes of a fit, and the sentences that say which came out."""

from __future__ import annotations

from typing import Literal

import numpy as np

from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.quoting import counted
from polyattn.solve.ridge import RidgePath
from polyattn.solve.solution import Solution
from polyattn.solve.solvers import Source
from polyattn.stats.rows import Rows

FitName = Literal["unique", "minimum_norm", "regularised", "iterative", "limited_heads"]

FIT_OUTCOMES = OutcomeSet[FitName](
    "FitResult",
    {
        "unique": Meaning(True, "The global optimum, and the data determine all coefficients."),
        "minimum_norm": Meaning(False, "One of several global optima: the one of smallest norm."),
        "regularised": Meaning(True, "The unique minimiser of squared error plus the penalty."),
        "iterative": Meaning(
            False, "A global optimum was approached; whether it is unique was not examined."
        ),
        "limited_heads": Meaning(True, "The best layer found with so many heads, and its gap."),
    },
)

# Rounding times a condition number above this may be seen in the third digit.
BLURRED = 1e13

# Sizes further apart than this are worth a word where they may be the cause of trouble: features
# are of third degree, so that rounding reaches sequences that are 1e5 times smaller than others.
UNLIKE_COORDINATES, UNLIKE_SEQUENCES = 30.0, 1e4


SENSITIVE = (
    "The coefficients are sensitive to noise; a small ridge or data that vary more would steady "
    "them."
)


def describe(solution: Solution, source: Source, path: RidgePath | None = None) -> Outcome[FitName]:
    """The outcome of a solution for a source; ``path`` is how its ridge was chosen, if it was."""
    n_features, n_rows = source.n_features, source.n_positive
    if solution.ridge > 0:
        words = f"The unique minimiser of squared error + {solution.ridge:.3g} ||T||^2 was found."
        words += solution.note
        blurred = not solution.condition < BLURRED
        if blurred:
            words += (
                f" Its condition number, about {solution.condition:.0e}, is beyond float64: the "
                "coefficients may be wrong, and so may predictions on inputs unlike the data. A "
                "larger ridge, or coordinates of similar size, would steady them."
            )
        advice = (
            "Smaller ridge follows the data more closely; ridge='loo' chooses it by leaving "
            "sequences out."
        )
        advice = _choice(path, source) if path else advice
        return FIT_OUTCOMES("regularised", words, advice, doubtful=blurred)
    if solution.rank is None:
        return FIT_OUTCOMES(
            "iterative",
            "A global optimum of smallest norm was approached iteratively." + solution.note,
            "Whether it is unique was not examined.",
        )
    if solution.rank == n_features:
        determined = "its coefficient" if n_features == 1 else f"all {n_features} coefficients"
        return FIT_OUTCOMES(
            "unique",
            "The unique global optimum over any number of heads was found: the data determine "
            f"{determined} (condition number about {solution.condition:.1e})." + solution.note,
            "" if solution.condition < 1e8 else SENSITIVE,
        )
    cause = (
        f"there {'is' if n_rows == 1 else 'are'} {counted(n_rows, 'predicted position')} for "
        f"{counted(n_features, 'coefficient')}"
        if n_rows < n_features
        else "the tokens do not vary in every way that the layer can see (constant, repeated or "
        "discrete coordinates, short sequences)"
    )
    hidden = _hidden(source) if isinstance(source, Rows) else ""
    if hidden and n_rows >= n_features:
        return FIT_OUTCOMES(
            "minimum_norm",
            f"A global optimum was found, and in float64 it is not unique: rank {solution.rank} of "
            f"{n_features} – {hidden}. The minimiser of smallest norm was chosen." + solution.note,
            "Bring the sequences to a similar size, or leave out the largest; pa.certify says "
            "whether the data determine the layer.",
        )
    return FIT_OUTCOMES(
        "minimum_norm",
        f"A global optimum was found, but it is not unique: rank {solution.rank} of {n_features} "
        f"– {cause}. The minimiser of smallest norm was chosen." + solution.note,
        "Predictions on inputs unlike the data depend on that choice: add data, or set ridge > 0.",
    )


def describe_limited(
    optimum: Outcome[FitName],
    n_heads: int,
    risk: float,
    optimal_risk: float,
    ridge: float,
    note: str,
) -> Outcome[FitName]:
    """The outcome of a fit with a limited number of heads, beside that of the optimum."""
    best = "the optimum over any number of heads, which no layer can beat,"
    if ridge > 0:
        best = "the minimiser with this ridge over any number of heads"
    return FIT_OUTCOMES(
        "limited_heads",
        f"The best layer with {counted(n_heads, 'head')} that was found has risk {risk:.6g}; "
        f"{best} has {optimal_risk:.6g} (gap {risk - optimal_risk:.3g}).{note}",
        f"The optimum itself: {optimum.sentence}",
        doubtful=not optimum.ok,
    )


def _choice(path: RidgePath, source: Source) -> str:
    """What is to be said of a ridge that the data chose."""
    words = f"The ridge was chosen by {path.kind!r}: see ridge_path for the others."
    if path.best != path.ridges[0] or len(path.ridges) == 1:
        return words
    sizes = source.coordinate_sizes[source.coordinate_sizes > 0]
    spread = float(sizes.max() / sizes.min()) if len(sizes) else 1.0
    words += " It is the smallest of them: a smaller one, or ridge=0, may be better."
    if spread > UNLIKE_COORDINATES:
        words += (
            f" The coordinates differ in size by a factor of about {spread:.0e}, and no ridge "
            "suits them all: bring them to a similar size."
        )
    return words


def _hidden(rows: Rows) -> str:
    """Why large sequences may hide what the others say; empty if they do not."""
    sizes = np.maximum.reduceat(np.abs(rows.batch.values).max(axis=1), rows.batch.offsets[:-1])
    spread = float(sizes.max() / (np.median(sizes) or 1.0))
    if spread < UNLIKE_SEQUENCES:
        return ""
    return (
        f"the largest sequence is about {spread:.0e} times larger than most, and beside it "
        "rounding may hide what the others say"
    )
