"""What learning by rules found, in a sentence that claims no more than was checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from polyattn.outcome import Meaning, Outcome, OutcomeSet

RulesName = Literal["learned", "untested", "ambiguous", "noisy", "unexplained", "unchecked"]

RULES_OUTCOMES = OutcomeSet[RulesName](
    "LearnedRules",
    {
        "learned": Meaning(
            True,
            "Every trace was predicted exactly by rules chosen without it, always the same rules, "
            "and nothing below applies.",
        ),
        "untested": Meaning(False, "The same, but the rules say something that no trace shows."),
        "ambiguous": Meaning(
            False, "Other rules fit the traces as well, and would go on differently."
        ),
        "noisy": Meaning(False, "Always the same rules, but some tokens contradict them."),
        "unexplained": Meaning(False, "Tokens of left-out traces were predicted wrongly."),
        "unchecked": Meaning(False, "Too few traces to leave any out."),
    },
)

# Fewer traces agree too easily.
FEWEST_FOLDS = 3

# With so large a share of the held-out tokens wrong, rules explain nothing worth reporting.  Of 300
# sets of few clean traces the same rules erred so often in 3, of a program that no rules say.
MOSTLY_WRONG = 0.25


@dataclass(frozen=True)
class Mismatch:
    """A held-out token that was predicted wrongly: which trace, token and attribute."""

    trace: int
    token: int
    attribute: str

    def __str__(self) -> str:
        return f"trace {self.trace}, token {self.token}, attribute {self.attribute!r}"


@dataclass(frozen=True)
class RuleFindings:
    """All that was checked.

    n_folds : how many times the rules were learned without a part of the traces
    n_agreeing : how many of these times they were the same rules as on all traces
    n_tokens : predicted held-out tokens
    mismatches : those that were wrong, with each attribute that was
    gaps : what the rules say and no trace has tested
    rivals : rules that fit as well and would go on differently, or better, in words
    """

    n_traces: int
    n_folds: int
    n_agreeing: int
    n_tokens: int
    mismatches: tuple[Mismatch, ...]
    gaps: tuple[str, ...]
    rivals: tuple[str, ...] = ()

    @property
    def n_wrong(self) -> int:
        """Held-out tokens with at least one wrong attribute."""
        return len({(each.trace, each.token) for each in self.mismatches})


def outcome_of(found: RuleFindings) -> Outcome[RulesName]:
    """The findings in words; only ``learned`` is a success."""
    stable, share = found.n_agreeing == found.n_folds, found.n_wrong / max(1, found.n_tokens)
    if found.n_folds < FEWEST_FOLDS:
        outcome = RULES_OUTCOMES(
            "unchecked",
            f"Fewer than {FEWEST_FOLDS} traces cannot check what was learned from the others.",
            "Give more traces.",
        )
    elif found.mismatches and stable and share < MOSTLY_WRONG and not found.rivals:
        outcome = RULES_OUTCOMES(
            "noisy",
            f"All {found.n_folds} folds found the same rules, which disagree with {share:.1%} of "
            f"the held-out tokens, first {found.mismatches[0]}: labels are wrong, or rules of this "
            "schema cannot say all.",
            "If the labels are clean, add an attribute that the step needs, or more traces.",
        )
    elif found.mismatches:
        fit_all = f" No label need be wrong: {'; '.join(found.rivals)}." if found.rivals else ""
        outcome = RULES_OUTCOMES(
            "unexplained",
            f"{found.n_wrong} of {found.n_tokens} held-out tokens were predicted wrongly, first "
            f"{found.mismatches[0]}; {found.n_agreeing} of {found.n_folds} folds found the same "
            f"rules.{fit_all}",
            "Give more traces, of more machines and of mixed lengths; if that does not help, the "
            "schema lacks what the step needs.",
        )
    elif not stable:
        outcome = RULES_OUTCOMES(
            "ambiguous",
            "Every held-out token was predicted, but "
            f"{found.n_folds - found.n_agreeing} of {found.n_folds} folds found other rules.",
            "Give more traces: they tell the rules apart.",
        )
    elif found.rivals:
        outcome = RULES_OUTCOMES(
            "ambiguous",
            "Every held-out token was predicted, but other rules fit as well and would go on "
            f"differently: {'; '.join(found.rivals)}.",
            "Give more traces, or longer ones: they tell the rules apart.",
        )
    elif found.gaps:
        outcome = RULES_OUTCOMES(
            "untested",
            "Every held-out token was predicted, but the rules say more than the traces show: "
            f"{'; '.join(found.gaps)}.",
            "Give traces in which that happens.",
        )
    else:
        outcome = RULES_OUTCOMES(
            "learned",
            f"Every token of all {found.n_traces} traces was predicted exactly by rules learned "
            f"without that trace, and all {found.n_folds} folds found the same rules.",
        )
    return outcome
