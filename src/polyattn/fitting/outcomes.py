"""The outcomes of a fit, and the sentences that say which came out."""

from __future__ import annotations

from typing import Literal

import numpy as np

from polyattn.form.layout import Layout
from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.quoting import counted
from polyattn.solve.logistic import LogisticSolution
from polyattn.solve.ridge import RidgePath
from polyattn.solve.solution import Solution
from polyattn.solve.solvers import Source
from polyattn.solve.structure import FeatureGroups
from polyattn.stats.rows import Rows

FitName = Literal[
    "unique", "minimum_norm", "regularised", "iterative", "limited_heads", "separable",
    "not_converged",
]  # fmt: skip

FIT_OUTCOMES = OutcomeSet[FitName](
    "FitResult",
    {
        "unique": Meaning(True, "The global optimum, and the data determine all coefficients."),
        "minimum_norm": Meaning(False, "One of several global optima: the one of smallest norm."),
        "regularised": Meaning(True, "The unique minimiser of the loss plus the penalty."),
        "iterative": Meaning(
            False, "A global optimum was approached; whether it is unique was not examined."
        ),
        "limited_heads": Meaning(True, "The best layer found with so many heads, and its gap."),
        "separable": Meaning(
            False, "A layer classifies all data rightly: without a ridge log-loss has no minimiser."
        ),
        "not_converged": Meaning(
            False, "Of log-loss: that a minimum was reached, or that there is one, is not proved."
        ),
    },
)

# An objective that is proved to be so near its minimum, relatively, is called minimal.
NEAR_MINIMUM = 1e-8

# Rounding times a condition number above this may be seen in the third digit.
BLURRED = 1e13

# Sizes further apart than this are worth a word where they may be the cause of trouble: features
# are of third degree, so that rounding reaches sequences that are 1e5 times smaller than others.
UNLIKE_COORDINATES, UNLIKE_SEQUENCES = 30.0, 1e4

# Of coordinates that are always zero, so many are named.
MOST_NAMED = 8


CHOICE = "Predictions on inputs unlike the data depend on that choice: add data, or set ridge > 0."
SENSITIVE = (
    "The coefficients are sensitive to noise; a small ridge or data that vary more would steady "
    "them."
)


def describe(solution: Solution, source: Source, path: RidgePath | None = None) -> Outcome[FitName]:
    """The outcome of a solution for a source; ``path`` is how its ridge was chosen, if it was."""
    n_features, n_rows = source.n_features, source.n_positive
    if solution.ridge > 0:
        verb = "found" if solution.is_reached else "approached"
        words = f"The unique minimiser of squared error + {solution.ridge:.3g} ||T||^2 was {verb}."
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
        return FIT_OUTCOMES(
            "regularised", words, advice, doubtful=blurred or not solution.is_reached
        )
    if solution.rank is None:
        return FIT_OUTCOMES(
            "iterative",
            "A global optimum was approached iteratively." + solution.note,
            "Whether it is unique was not proved; pa.certify can decide it."
            if n_rows >= n_features
            else CHOICE,
        )
    if solution.rank == n_features:
        determined = "its coefficient" if n_features == 1 else f"all {n_features} coefficients"
        return FIT_OUTCOMES(
            "unique",
            "The unique global optimum over any number of heads was found: the data determine "
            f"{determined} (condition number about {solution.condition:.1e})." + solution.note,
            "" if solution.condition < 1e8 else SENSITIVE,
        )
    structure = solution.structure
    if structure is not None and solution.rank == len(structure.kept) > 0:
        words = structure_in_words(structure, source.layout)
        return FIT_OUTCOMES(
            "minimum_norm",
            f"A global optimum was found, but it is not unique: {words} The data determine all "
            f"else: rank {solution.rank} of {n_features} (condition number about "
            f"{solution.condition:.1e}). "
            "Of all optima the one of smallest norm was chosen." + solution.note,
            "Predictions are determined on inputs of which the same holds; on others they depend "
            "on that choice.",
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
        CHOICE,
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


def structure_in_words(structure: FeatureGroups, layout: Layout) -> str:
    """Which features never occur, and how many are multiples of others, in a sentence or two."""
    said = []
    if structure.n_zero:
        grid = np.ones((layout.n_sums, layout.n_queries), dtype=bool)
        kept = slice(None) if layout.kept is None else layout.kept
        grid.reshape(-1)[kept] = structure.owner < 0
        queries = np.flatnonzero(grid[:, : len(layout.query)].all(axis=0))
        where = ""
        if len(queries):
            shown = ", ".join(map(str, queries[:MOST_NAMED])) + ", ..." * (
                len(queries) > MOST_NAMED
            )
            where = f", since number {shown} of the query is always 0"
        said.append(
            f"{structure.n_zero:,} of {counted(len(structure.owner), 'feature')} never occur in "
            f"the data (they are always 0){where}."
        )
    if structure.n_repeated:
        some = counted(structure.n_repeated, "feature")
        said.append(
            f"{some} {'is' if structure.n_repeated == 1 else 'are'} always a multiple of another."
        )
    return " ".join(said)


def describe_logistic(
    solution: LogisticSolution, rows: Rows, ridge: float, n_classes: int
) -> Outcome[FitName]:
    """The outcome of a fit by log-loss with this ridge, in the units of the data."""
    if solution.separates:
        return _separable(rows, ridge)
    near = (
        "no bound on its distance from the minimum was proved"
        if solution.bound is None
        else f"it is proved to be at most {solution.bound:.1e} above its minimum, rounding included"
    )
    found = f"The objective is {solution.objective:.6g}; {near}."
    steps = f" It took {counted(solution.n_steps, 'step')} of Newton's method.{solution.note}"
    if solution.bound is None and solution.rank is None and ridge == 0.0:
        return FIT_OUTCOMES(
            "iterative",
            f"A minimiser of log-loss was approached. {found}{steps}",
            "Whether it is unique, or exists at all, was not examined: set ridge > 0.",
        )
    if solution.bound is None or solution.bound > NEAR_MINIMUM * solution.objective:
        return FIT_OUTCOMES(
            "not_converged",
            f"Newton's method came to rest, but not at a proved minimum of log-loss. {found}{steps}"
            f"{_why_not_proved(ridge)}",
            "Set a larger ridge, and bring coordinates to similar size.",
        )
    if ridge > 0.0:
        return FIT_OUTCOMES(
            "regularised",
            f"The unique minimiser of log-loss + {ridge:.3g} ||T||^2 was found. {found}{steps}",
            "Smaller ridge follows the data more closely.",
        )
    p = rows.n_features
    if solution.rank == p:
        zero_sum = "" if n_classes == 2 else " whose outputs add up to zero"
        return FIT_OUTCOMES(
            "unique",
            f"The unique minimiser of log-loss{zero_sum} was found: the data are not separable, "
            f"and determine all {counted(p, 'coefficient')} (condition number about "
            f"{solution.condition:.1e}). {found}{steps}",
            "" if solution.condition < 1e8 else SENSITIVE,
        )
    return FIT_OUTCOMES(
        "minimum_norm",
        f"A minimiser of log-loss was found, but it is not unique: rank {solution.rank} of {p}. "
        f"The one of smallest norm was chosen. {found}{steps}",
        CHOICE,
    )


def _why_not_proved(ridge: float) -> str:
    if ridge > 0.0:
        return " Beside rounding, so small a ridge proves little."
    return (
        " No layer was found that classifies all data rightly; perhaps one does so for some of "
        "them, and their share of the loss has no minimiser."
    )


def _separable(rows: Rows, ridge: float) -> Outcome[FitName]:
    positions = counted(rows.n_positive, "predicted position")
    vanished = ""
    if ridge > 0.0:
        vanished = f" The ridge, {ridge:.3g}, vanishes beside tokens of this size."
    return FIT_OUTCOMES(
        "separable",
        f"The data are separable: this layer gives each of {positions} its own label, as the "
        "margins show, so that log-loss falls for ever as it is multiplied by larger numbers and "
        f"has no minimiser.{vanished} The coefficients are those of the layer, with smallest "
        "margin 1: its labels are right on the data, its probabilities mean nothing.",
        "Set ridge > 0: there is a unique minimiser then.",
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
