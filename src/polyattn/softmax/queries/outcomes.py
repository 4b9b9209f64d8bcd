"""The outcomes of ``learn_from_queries``: their names, and the sentences."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Literal

import numpy as np

from polyattn.errors import PolyattnError
from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.quoting import counted

# Heads in more doubt than this, relative to their size, are not called recovered without more.
LARGEST_DOUBT = 1.5e-4

if TYPE_CHECKING:
    from polyattn.softmax.queries.findings import HeldOutCheck, QueryFindings

QueryName = Literal[
    "recovered", "recovered_to_precision", "recovered_on_these_inputs", "other_rows_differ",
    "long_sequences_differ", "imprecise", "other_number_of_heads", "other_structure",
    "not_recovered", "bias_needed", "not_attention", "not_deterministic", "stateful", "saturated",
    "budget", "oracle_failed", "interrupted", "out_of_time",
]  # fmt: skip

QUERY_OUTCOMES = OutcomeSet[QueryName](
    "QueryResult",
    {
        "recovered": Meaning(
            True, "Fresh random sequences agree, and residuals leave no head in doubt."
        ),
        "recovered_to_precision": Meaning(
            True, "The layer is right as far as rounded or noisy answers show: see its error bars."
        ),
        "recovered_on_these_inputs": Meaning(
            False, "Attention has no effect on any token that the oracle answers."
        ),
        "other_rows_differ": Meaning(
            False, "The last row is that of a layer; the other rows are not those of its mode."
        ),
        "long_sequences_differ": Meaning(
            False, "Short sequences are answered as by a layer, long ones otherwise."
        ),
        "imprecise": Meaning(False, "A layer explains the oracle, but less exactly than required."),
        "other_number_of_heads": Meaning(False, "It is a layer, but not of n_heads heads."),
        "other_structure": Meaning(
            False, "Around attention lies something else than the arguments say."
        ),
        "not_recovered": Meaning(False, "No layer that was found explains the oracle."),
        "bias_needed": Meaning(False, "One-token answers are affine, not linear."),
        "not_attention": Meaning(False, "No attention without positions answers so."),
        "not_deterministic": Meaning(False, "The same query has different answers."),
        "stateful": Meaning(False, "Answers depend on other queries, before or beside a query."),
        "saturated": Meaning(False, "Outputs do not move with the inputs."),
        "budget": Meaning(False, "Stopped by max_queries; what was known by then."),
        "oracle_failed": Meaning(False, "Stopped by an error of the oracle; what was known."),
        "interrupted": Meaning(False, "Stopped by the user; what was known by then."),
        "out_of_time": Meaning(False, "Stopped by max_seconds; what was known by then."),
    },
)

# Failures that clipped answers explain.
CLIPPING_EXPLAINS = ("not_attention", "not_recovered", "imprecise", "saturated")

# The next step where a run could not go on.
ADVICE: dict[QueryName, str] = {
    "budget": "Raise max_queries; the layer is what was known when it was reached.",
    "oracle_failed": "The layer is what was known before; mend the oracle and run again.",
    "bias_needed": "Call again with bias=True.",
    "not_attention": "Give an oracle of the attention alone, or with what can be found: a residual "
    "connection, normalisation before attention, rotary positions.",
    "other_structure": "Leave residual, normalisation and rotary out.",
    "not_deterministic": "Switch dropout and sampling off.",
    "stateful": "Clear caches and counters before every call, and put normalisation of batches "
    "into evaluation mode.",
    "saturated": "Scale the inputs of the oracle.",
    "recovered_on_these_inputs": "Nothing, if tokens are no larger; else scale the inputs of the "
    "oracle.",
    "not_recovered": "With more heads than outputs only a few can be; saturated or nearly equal "
    "heads also defy separation. Another random_state tries other queries.",
}


class Stopped(PolyattnError):
    """No further query can be made: the outcome says why."""

    def __init__(self, name: QueryName, sentence: str, advice: str | None = None) -> None:
        super().__init__(sentence)
        self.outcome = QUERY_OUTCOMES(name, str(self), advice or ADVICE[name])


def concluded(
    check: HeldOutCheck, findings: QueryFindings, n_heads: int | None
) -> Outcome[QueryName]:
    """The outcome of a layer after the held-out check; ``n_heads`` is the number that was given."""
    heads, total = counted(findings.n_heads, "head"), findings.total
    agreement = (
        f"held-out sequences of up to {check.longest} tokens deviate by at most "
        f"{check.deviation:.1e} of the effect of attention"
    )
    if check.passed and check.differs_at:
        return QUERY_OUTCOMES(
            "long_sequences_differ",
            f"The oracle is a layer of {heads} for short sequences only: {agreement}, but those of "
            f"{check.differs_at} tokens differ.",
            "A window, a truncation or a change with the length may be behind them: use the layer "
            "for short sequences alone, or give an oracle without it.",
        )
    if total is not None and not total.deterministic:
        good = (
            f"The layer of {heads} is as good as that allows"
            if check.passed
            else f"No layer explains the oracle beside that, not the one of {heads}, either"
        )
        return QUERY_OUTCOMES(
            "not_deterministic",
            f"The same query has different answers: they differ by {total.repeat_error:.1e} of "
            f"their size. {good}: {agreement}{_bars(check)}.",
            ADVICE["not_deterministic"],
        )
    if check.close and not check.passed:
        wrong = (
            f"attn and value may be wrong by {check.doubt:.1e} of their size"
            if isfinite(check.doubt)
            else "that is no rounding: heads nearly alike may have been taken for one"
        )
        return QUERY_OUTCOMES(
            "imprecise",
            f"A layer of {heads} explains the oracle, but only so far: {agreement} "
            f"({check.allowed:.1e} was required), and {wrong}.",
            "Answers in float64 would help; another random_state tries other queries.",
        )
    if not check.passed:
        return QUERY_OUTCOMES(
            "not_recovered",
            f"No layer that was found explains the oracle: {agreement}, "
            f"{check.allowed:.1e} was required.",
            "Heads may be too alike, too different in size, or too many for the number of outputs; "
            "another random_state tries other queries. If the oracle does more than attention, "
            "give the attention alone.",
        )
    return _passed(check, findings, n_heads, agreement)


def _bars(check: HeldOutCheck) -> str:
    """How well the heads are known, to end a sentence with; nothing where nobody knows."""
    if check.errors is None or not isfinite(check.doubt):
        return ""
    return f", and attn and value are known to {check.doubt:.1e} of their size (one standard error)"


def _passed(
    check: HeldOutCheck, findings: QueryFindings, n_heads: int | None, agreement: str
) -> Outcome[QueryName]:
    """The outcome of a layer that passed the held-out check."""
    heads = counted(findings.n_heads, "head")
    if findings.no_effect_up_to is not None:
        return QUERY_OUTCOMES(
            "recovered_on_these_inputs",
            f"Attention has no effect on tokens up to size {findings.no_effect_up_to:.0e}, where a "
            "head that attends to all tokens alike is right; larger ones the oracle does not "
            "answer.",
            ADVICE["recovered_on_these_inputs"],
        )
    if n_heads is not None and n_heads != findings.n_heads:
        return QUERY_OUTCOMES(
            "other_number_of_heads",
            f"The oracle is a layer of {heads}, not {n_heads}: {agreement}.",
            "Heads with equal attn can only be seen merged and heads with value zero not at all; "
            "leave n_heads out to accept what is found.",
        )
    # Neither mode is told from the other where both answer all rows.
    in_all_rows = findings.layer_mode in check.modes
    of_rows = "" if in_all_rows else ", of the last row only"
    exact = check.doubt <= LARGEST_DOUBT
    how, bars = ("", "") if exact else (" as far as its answers show it,", _bars(check))
    sentence = f"The layer was recovered{how} with {heads}{of_rows}: {agreement}{bars}."
    if findings.total is not None and not findings.settled and not np.any(findings.total.value):
        sentence += " Every answer was zero: see that the sequences reach the model."
    if check.ended:
        sentence += f" {check.ended}"
    if findings.bias:
        invisible = (
            "The last row of W_K is invisible in planes that do not turn"
            if findings.structure.turns
            else "The last column of attn is invisible"
        )
        sentence += (
            f" {invisible} and set to zero; of the last rows of value only their sum can be seen, "
            "which is shared equally."
        )
    if in_all_rows or findings.mode == "last":
        return QUERY_OUTCOMES("recovered" if exact else "recovered_to_precision", sentence)
    return _other_rows_differ(sentence, check, findings)


def _other_rows_differ(
    sentence: str, check: HeldOutCheck, findings: QueryFindings
) -> Outcome[QueryName]:
    """The outcome where the layer, of its mode, answers the last row and not the others."""
    if check.modes:
        return QUERY_OUTCOMES(
            "other_rows_differ",
            f"{sentence} The other rows are those of mode={check.modes[0]!r}, not of "
            f"mode={findings.mode!r}, which was given.",
            "Leave mode out to find it.",
        )
    return QUERY_OUTCOMES(
        "other_rows_differ",
        f"{sentence} The other rows are those of neither a full nor a causal layer.",
        "Another mask may be behind them; mode='last' accepts a layer of the last row alone.",
    )


def with_clipping(outcome: Outcome[QueryName], bound: float | None) -> Outcome[QueryName]:
    """The outcome of an oracle whose answers are clipped at a bound, if there is one, says so."""
    if bound is None or not (outcome.ok or outcome.name in CLIPPING_EXPLAINS):
        return outcome
    clipped = f"Answers are clipped: none is larger than {bound:.6g}, which many are equal to."
    return QUERY_OUTCOMES(
        "recovered_on_these_inputs" if outcome.ok else outcome.name,
        f"{clipped} {outcome.sentence}",
        "Let the oracle answer without the bound, or scale its inputs so that answers stay below.",
    )


def unfinished(
    name: Literal["interrupted", "out_of_time"], findings: QueryFindings, n_heads: int | None
) -> Outcome[QueryName]:
    """The outcome of a run that was ended: what passed the held-out check stays recovered."""
    reason, cure = {
        "interrupted": ("Learning was interrupted", "run again"),
        "out_of_time": ("The time that max_seconds allows was over", "give it more time"),
    }[name]
    best = findings.best
    if findings.total is None:
        return QUERY_OUTCOMES(
            name,
            f"{reason} before a layer was known: there is none.",
            f"{cure.capitalize()}; one-token sequences come first and give the sum of the values.",
        )
    if best is not None and best.passed:
        return concluded(best, findings, n_heads)
    known = f"The best layer so far has {counted(findings.n_heads, 'head')}"
    if best is not None:
        known += (
            f" and deviates on held-out sequences by up to {best.deviation:.1e} of the effect of "
            "attention."
        )
    elif findings.settled:
        known += (
            f", known for {len(findings.settled)} of {len(findings.total.value)} differences of "
            "tokens; it was not checked."
        )
    else:
        known = (
            "Only the sum of the values is known: the layer is one head that attends to all tokens "
            "alike."
        )
    next_step = f"The layer is what was known by then; {cure} to finish."
    return QUERY_OUTCOMES(name, f"{reason}. {known}", next_step)
