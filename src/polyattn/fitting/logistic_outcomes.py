"""The sentences that say what came out of a fit by log-loss."""

from __future__ import annotations

from polyattn.fitting.outcomes import CHOICE, FIT_OUTCOMES, SENSITIVE, FitName
from polyattn.outcome import Outcome
from polyattn.quoting import counted
from polyattn.solve.logistic import LogisticSolution
from polyattn.solve.separation import Separation
from polyattn.stats.rows import Rows

# An objective that is proved to be so near its minimum, relatively, is called minimal.
NEAR_MINIMUM = 1e-8

# Of several labels the first of these is reported.
WORST_FIRST = (
    "not_converged", "iterative", "partly_separable", "separable", "minimum_norm", "unique",
    "regularised",
)  # fmt: skip

SET_RIDGE = "Set ridge > 0: there is a unique minimiser then."


def describe_logistic(
    solution: LogisticSolution, rows: Rows, ridge: float, n_classes: int
) -> Outcome[FitName]:
    """The outcome of a fit by log-loss with this ridge, in the units of the data."""
    if solution.separates:
        return _separable(solution, rows, ridge)
    found = (
        f"{_objective(solution)} It took {counted(solution.n_steps, 'step')} of Newton's method."
    )
    found += solution.note
    if solution.bound is None and solution.rank is None and ridge == 0.0:
        return FIT_OUTCOMES(
            "iterative",
            f"A minimiser of log-loss was approached. {found}",
            "Whether it is unique, or exists at all, was not examined: set ridge > 0.",
            doubtful=True,
        )
    is_near = solution.bound is not None and solution.bound <= NEAR_MINIMUM * solution.objective
    if is_near and solution.part is not None:
        return _partly_separable(solution.part, found)
    if not is_near or not solution.has_minimum:
        return FIT_OUTCOMES(
            "not_converged",
            f"Newton's method came to rest, but not at a proved minimum of log-loss. {found}"
            f"{_why_not_proved(solution, ridge)}",
            "Set a larger ridge, and bring coordinates to similar size.",
        )
    if ridge > 0.0:
        return FIT_OUTCOMES(
            "regularised",
            f"The unique minimiser of log-loss + {ridge:.3g} ||T||^2 was found. {found}",
            "Smaller ridge follows the data more closely.",
        )
    return _minimum(solution, rows.n_features, n_classes, found)


def describe_outputs(outcomes: list[Outcome[FitName]]) -> Outcome[FitName]:
    """The outcome of several labels, each fitted by a log-loss of its own: the worst of them."""
    worst = min(range(len(outcomes)), key=lambda at: WORST_FIRST.index(outcomes[at].name))
    said = outcomes[worst]
    alike = sum(each.name == said.name for each in outcomes)
    others = "as of all" if alike == len(outcomes) else f"as of {alike} of them"
    return FIT_OUTCOMES(
        said.name,
        f"Each of {counted(len(outcomes), 'label')} was fitted by a log-loss of its own. Of label "
        f"{worst}, {others}: {said.sentence}",
        said.next_step,
        doubtful=not all(each.ok for each in outcomes),
    )


def _minimum(
    solution: LogisticSolution, n_features: int, n_classes: int, found: str
) -> Outcome[FitName]:
    """The outcome of a minimiser without a ridge."""
    if solution.rank == n_features:
        zero_sum = "" if n_classes == 2 else " whose outputs add up to zero"
        determined = "its coefficient" if n_features == 1 else f"all {n_features} coefficients"
        return FIT_OUTCOMES(
            "unique",
            f"The unique minimiser of log-loss{zero_sum} was found: the data are not separable, "
            f"and determine {determined} (condition number about {solution.condition:.1e}). "
            f"{found}",
            "" if solution.condition < 1e8 else SENSITIVE,
        )
    return FIT_OUTCOMES(
        "minimum_norm",
        f"A minimiser of log-loss was found, but it is not unique: rank {solution.rank} of "
        f"{n_features}. The one of smallest norm was chosen. {found}",
        CHOICE,
    )


def _objective(solution: LogisticSolution) -> str:
    """The objective, and what is proved of it."""
    if solution.bound is None:
        near = "no bound on its distance from the minimum was proved"
    else:
        least = "minimum" if solution.has_minimum else "infimum"
        near = f"it is proved to be at most {solution.bound:.1e} above its {least}"
        near += ", rounding included"
        if solution.judged:
            near += (
                f", over all directions in which the features vary by more than "
                f"{solution.judged:.0e} of the largest"
            )
    return f"The objective is {solution.objective:.6g}; {near}."


def _why_not_proved(solution: LogisticSolution, ridge: float) -> str:
    if ridge > 0.0:
        return " Beside rounding, so small a ridge proves little."
    if solution.bound is not None:
        return " Whether that is attained by any layer is not known."
    return (
        " No layer was found that classifies all data rightly; perhaps one does so for some of "
        "them, and their share of the loss has no minimiser."
    )


def _separable(solution: LogisticSolution, rows: Rows, ridge: float) -> Outcome[FitName]:
    positions = counted(rows.n_positive - solution.n_without, "predicted position")
    if solution.n_without:
        positions += f" (without {solution.n_without} that have no features)"
    # A position without features has the output 0, whatever its label.
    where = "at these positions" if solution.n_without else "on the data"
    vanished = ""
    if ridge > 0.0:
        vanished = f" The ridge, {ridge:.3g}, vanishes beside tokens of this size."
    return FIT_OUTCOMES(
        "separable",
        f"The data are separable: this layer gives each of {positions} its own label, as the "
        "margins show, so that log-loss falls for ever as it is multiplied by larger numbers and "
        f"has no minimiser.{vanished} The coefficients are those of the layer, with smallest "
        f"margin 1: its labels are right {where}, its probabilities mean nothing.",
        SET_RIDGE,
    )


def _partly_separable(part: Separation, found: str) -> Outcome[FitName]:
    return FIT_OUTCOMES(
        "partly_separable",
        f"The data are separable in part: some layer gives {part.n_separated} of "
        f"{counted(part.n_rows, 'predicted position')} their own label, and moves the outputs of "
        "the others by no more than rounding. Added again and again, it lowers log-loss for ever, "
        f"which has no minimiser then. {found} The probabilities of those {part.n_separated} mean "
        "nothing.",
        SET_RIDGE,
    )
