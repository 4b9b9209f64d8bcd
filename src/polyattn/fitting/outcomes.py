"""The outcomes of a fit, and the sentences that say which came out."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polyattn.form.layout import Layout
from polyattn.numerics.arrays import ranges_of_rows
from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.quoting import counted
from polyattn.solve.decay import DecayPath
from polyattn.solve.ridge import RidgePath
from polyattn.solve.solution import Solution
from polyattn.solve.solvers import Source
from polyattn.solve.structure import FeatureGroups
from polyattn.stats.passes import of_parts
from polyattn.stats.rows import Rows

FitName = Literal[
    "unique", "minimum_norm", "regularised", "iterative", "limited_heads", "separable",
    "partly_separable", "not_converged",
]  # fmt: skip

FIT_OUTCOMES = OutcomeSet[FitName](
    "FitResult",
    {
        "unique": Meaning(True, "The global optimum, and the data determine all coefficients."),
        "minimum_norm": Meaning(False, "One of several global optima: the one of smallest norm."),
        "regularised": Meaning(True, "The unique minimiser of the loss plus the penalty."),
        "iterative": Meaning(
            True,
            "A global optimum was approached: ok where it is proved to be minimal up to rounding, "
            "and a random test found no other.",
        ),
        "limited_heads": Meaning(True, "The best layer found with so many heads, and its gap."),
        "separable": Meaning(
            False,
            "A layer classifies all data that have features rightly: without a ridge log-loss has "
            "no minimiser.",
        ),
        "partly_separable": Meaning(
            False,
            "A layer classifies some data rightly and leaves the others as they are: without a "
            "ridge log-loss has no minimiser.",
        ),
        "not_converged": Meaning(
            False, "Of log-loss: that a minimum was reached, or that there is one, is not proved."
        ),
    },
)

# Rounding times a condition number above this may be seen in the third digit.
BLURRED = 1e13

# Sizes further apart than this are worth a word where they may be the cause of trouble: features
# are of third degree, so that rounding reaches sequences that are 1e5 times smaller than others.
UNLIKE_COORDINATES, UNLIKE_SEQUENCES = 30.0, 1e4

# Weights are squares of such factors.
UNLIKE_WEIGHTS = 1e20

# Tokens that are looked at together.
READ_TOKENS = 1 << 16

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
        hidden = _hidden_by_weights(source) if isinstance(source, Rows) else ""
        words = f" But {hidden}." if hidden else ""
        return FIT_OUTCOMES(
            "iterative",
            "A global optimum was approached iteratively." + solution.note + words,
            "Whether it is unique was not proved; pa.certify can decide it."
            if n_rows >= n_features
            else CHOICE,
            doubtful=bool(hidden) or not (solution.seems_unique and solution.is_reached),
        )
    if solution.rank == n_features:
        determined = "its coefficient" if n_features == 1 else f"all {n_features} coefficients"
        return FIT_OUTCOMES(
            "unique",
            "The unique global optimum over any number of heads was found: the data determine "
            f"{determined} (condition number about {solution.condition:.1e})." + solution.note,
            "" if solution.condition < 1e8 else SENSITIVE,
            doubtful=not solution.is_reached,
        )
    return _not_unique(solution, source)


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


def decay_in_words(path: DecayPath | None) -> str:
    """What is to be said of a decay that the data chose, beginning with a space."""
    if path is None:
        return ""
    if path.is_flat:
        return (
            " The data do not determine the decay: all that were tried predict sequences left out "
            "equally well, and 1 was taken."
        )
    bar = "" if path.error_bar is None else f" ± {path.error_bar:.1g}"
    words = f" The decay, {path.best:.6g}{bar}, was chosen by leaving sequences out."
    if path.error_bar is None:
        words += " How sure that is could not be estimated: the data may hardly determine it."
    if path.is_least_tried:
        words += " It is the smallest that was tried: a smaller one may be better."
    return words


def structure_in_words(structure: FeatureGroups, layout: Layout) -> str:
    """Which features never occur, and how many are multiples of others, in a sentence or two."""
    said = []
    if structure.n_zero:
        said.append(
            f"{structure.n_zero:,} of {counted(len(structure.owner), 'feature')} never occur in "
            f"the data (they are always 0){_zeros_in_words(structure, layout)}."
        )
    if structure.n_repeated:
        some = counted(structure.n_repeated, "feature")
        said.append(
            f"{some} {'is' if structure.n_repeated == 1 else 'are'} always a multiple of another."
        )
    return " ".join(said)


def _zeros_in_words(structure: FeatureGroups, layout: Layout) -> str:
    """Why features are always zero, as far as numbers of the query explain it."""
    grid = np.ones((layout.n_sums, layout.n_queries), dtype=bool)
    kept = slice(None) if layout.kept is None else layout.kept
    grid.reshape(-1)[kept] = structure.owner < 0
    queries = np.flatnonzero(grid[:, : len(layout.query)].all(axis=0))
    if not len(queries):
        return ""
    named = ", ".join(map(str, queries[:MOST_NAMED])) + ", ..." * (len(queries) > MOST_NAMED)
    several = len(queries) > 1
    why = f"since number{'s' * several} {named} of the query {'are' if several else 'is'} always 0"
    if not layout.is_plain:
        why += f" or {'have' if several else 'has'} nothing to attend to"
    # With each number of the query go as many features.
    explained = len(queries) * layout.block[0]
    if explained == structure.n_zero:
        return f", {why}"
    return (
        f": {explained:,} {why}, and {structure.n_zero - explained:,} since their sums over what "
        "is attended to are 0 wherever their numbers of the query are not"
    )


def _not_unique(solution: Solution, source: Source) -> Outcome[FitName]:
    """The outcome where the rank is known and not full: why, as far as that is known."""
    n_features, n_rows = source.n_features, source.n_positive
    sums = solution.statistics if isinstance(source, Rows) else source
    # A rank of 0 alone could be underflow.
    if solution.rank == 0 and sums is not None and sums.absent.all():
        return FIT_OUTCOMES(
            "minimum_norm",
            "A global optimum was found, but it is not unique: no feature ever occurs in the data "
            f"({'it is' if n_features == 1 else f'all {n_features:,} are'} always 0), since at "
            "every predicted position the query, or the sum over what it attends to, is 0. The "
            "minimiser of smallest norm was chosen: 0." + solution.note,
            "All layers of this form fit these data equally well: collect other data, or choose a "
            "form that sees more of them.",
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
    verb = "found" if solution.is_reached else "approached"
    # Fewer positions than coefficients are a cause of their own, unless rank is missing beside it.
    if hidden and (solution.rank or 0) < min(n_rows, n_features):
        return FIT_OUTCOMES(
            "minimum_norm",
            f"A global optimum was {verb}, and in float64 it is not unique: rank {solution.rank} "
            f"of {n_features} – {hidden}. The minimiser of smallest norm was chosen."
            + solution.note,
            "Bring sequences and weights to a similar size, or leave out the largest; pa.certify "
            "says whether the data determine the layer.",
        )
    return FIT_OUTCOMES(
        "minimum_norm",
        f"A global optimum was {verb}, but it is not unique: rank {solution.rank} of {n_features} "
        f"– {cause}. The minimiser of smallest norm was chosen." + solution.note,
        CHOICE,
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
    """Why large sequences or weights may hide what the others say; empty if they do not."""
    by_weights = _hidden_by_weights(rows)
    if by_weights:
        return by_weights
    sizes = np.concatenate(list(of_parts(rows, _sequence_sizes)))
    return _hidden_by("sequence", sizes, UNLIKE_SEQUENCES)


def _hidden_by_weights(rows: Rows) -> str:
    if rows.sequence_weights is None:
        return ""
    weights = rows.sequence_weights[rows.sequence_weights > 0]
    return _hidden_by("sample_weight", weights, UNLIKE_WEIGHTS)


def _hidden_by(what: str, sizes: NDArray, unlike: float) -> str:
    """That the largest of some sizes hides the others; empty if it is not so much larger."""
    usual = float(np.median(sizes)) or 1.0
    # The ratio itself may be beyond float64.
    exponent = float(np.log10(sizes.max(initial=0.0) or 1.0) - np.log10(usual))
    if exponent <= np.log10(unlike):
        return ""
    return (
        f"the largest {what} is about 1e{exponent:+03.0f} times larger than most, and beside it "
        "rounding may hide what the others say"
    )


def _sequence_sizes(rows: Rows) -> NDArray[np.float64]:
    """The largest magnitude in each sequence (n_sequences,)."""
    batch = rows.batch
    sizes = np.empty(len(batch))
    for first, stop in ranges_of_rows(batch.offsets, READ_TOKENS):
        start, end = int(batch.offsets[first]), int(batch.offsets[stop])
        # As floats: the magnitude of the smallest integer does not fit its own type.
        magnitudes = np.abs(batch.values[start:end], dtype=np.float64).max(axis=1)
        sizes[first:stop] = np.maximum.reduceat(magnitudes, batch.offsets[first:stop] - start)
    return sizes
