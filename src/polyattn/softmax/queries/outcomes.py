"""The sentences of learning from queries."""

from __future__ import annotations

from math import isfinite

from polyattn.model.softmax import SoftmaxAttention
from polyattn.outcome import Outcome
from polyattn.softmax.queries.calibrate import Sizes
from polyattn.softmax.queries.findings import Check, Findings, assemble
from polyattn.softmax.queries.oracle import Stopped
from polyattn.softmax.wording import counted_heads

ADVICE = {
    "budget": "Raise max_queries; the layer is what was known when it was reached.",
    "oracle_failed": "The layer is what was known before; mend the oracle and run again.",
    "bias_needed": "Call again with bias=True.",
    "not_attention": "Layers with positions, normalisation or residual streams are not covered: "
    "give an oracle of the attention alone.",
    "not_deterministic": "Switch dropout and sampling off.",
    "saturated": "Scale the inputs of the oracle.",
}


RUN_ON = "The layer is what was known by then; run again to finish."


def concluded(
    check: Check, layer: SoftmaxAttention, told: int | None, findings: Findings
) -> Outcome:
    """The outcome of a layer after the held-out check."""
    heads = counted_heads(layer.n_heads)
    agreement = (
        f"held-out sequences deviate by at most {check.error:.1e} of the effect of attention"
    )
    if not findings.deterministic:
        return Outcome(
            "not_deterministic",
            f"The same query has different answers, up to {findings.noise:.1e} of their size. "
            f"The layer of {heads} is as good as that allows: {agreement}.",
            ADVICE["not_deterministic"],
        )
    if check.close and not check.passed:
        wrong = (
            f"attn and value may be wrong by {check.doubt:.1e} of their size"
            if isfinite(check.doubt)
            else "that is no rounding: heads nearly alike may have been taken for one"
        )
        return Outcome(
            "imprecise",
            f"A layer of {heads} explains the oracle, but only so far: {agreement} "
            f"({check.tolerance:.1e} was required), and {wrong}.",
            "Answers in float64 would help; another random_state tries other queries.",
        )
    if not check.passed:
        return Outcome(
            "not_recovered",
            f"No layer that was found explains the oracle: {agreement}, "
            f"{check.tolerance:.1e} was required.",
            "Heads may be too alike, too different in size, or too many for the number of outputs; "
            "another random_state tries other queries.",
        )
    if told is not None and told != layer.n_heads:
        return Outcome(
            "other_number_of_heads",
            f"The oracle is a layer of {heads}, not {told}: {agreement}.",
            "Heads with equal attn can only be seen merged and heads with value zero not at all; "
            "leave n_heads out to accept what is found.",
        )
    conventions = (
        " The last column of attn is invisible and set to zero; of the last rows of value only "
        "their sum can be seen, which is shared equally."
        if layer.bias
        else ""
    )
    return Outcome(
        "recovered", f"The layer was recovered with {heads}: {agreement}.{conventions}", ""
    )


def beyond_reach(sizes: Sizes) -> Outcome:
    """The outcome when attention has no effect on any token that the oracle answers."""
    return Outcome(
        "recovered_on_these_inputs",
        f"Attention has no effect on tokens up to size {2.0**sizes.reach:.0e}, where a head that "
        "attends to all tokens alike is right; larger ones the oracle does not answer.",
        "Nothing, if tokens are no larger; else scale the inputs of the oracle.",
    )


def beside_bias(sizes: Sizes) -> Outcome:
    """The outcome when tokens on which attention acts are too large beside the constant 1."""
    return Outcome(
        "saturated",
        f"Attention has an effect on tokens of size {sizes.delta:.0e} and more only, beside which "
        "the constant coordinate of bias=True is lost.",
        ADVICE["saturated"],
    )


def unexplained(findings: Findings) -> Outcome:
    """The outcome when no road led to a complete layer."""
    known = f"{len(findings.heads)} differences" if findings.heads else "only the sum of values"
    return Outcome(
        "not_recovered",
        f"The heads could not be told apart ({known} solved).",
        "With more heads than outputs only a few can be; saturated or nearly equal heads also "
        "defy separation. Another random_state tries other queries.",
    )


def stopped(stop: Stopped) -> Outcome:
    """The outcome of a run that could not go on."""
    return Outcome(stop.name, stop.sentence, ADVICE[stop.name])


def interrupted(findings: Findings, told: int | None) -> Outcome:
    """The outcome of a run that was interrupted: what passed the held-out check stays recovered."""
    layer = assemble(findings, findings.settled, "last")
    if layer is None:
        return Outcome(
            "interrupted",
            "Learning was interrupted before a layer was known: there is none.",
            "Run again; one-token sequences come first and give the sum of the values.",
        )
    if findings.best is not None and findings.best.passed:
        return concluded(findings.best, layer, told, findings)
    return Outcome("interrupted", f"Learning was interrupted. {_so_far(findings, layer)}", RUN_ON)


def _so_far(findings: Findings, layer: SoftmaxAttention) -> str:
    """What is known of the layer, in words."""
    heads = counted_heads(layer.n_heads)
    if findings.best is not None:
        return (
            f"The best layer so far has {heads} and deviates on held-out sequences by up to "
            f"{findings.best.error:.1e} of the effect of attention."
        )
    if findings.settled:
        return (
            f"The best layer so far has {heads}, known for {len(findings.settled)} of "
            f"{layer.n_dims} differences of tokens; it was not checked."
        )
    return (
        "Only the sum of the values is known: the layer is one head that attends to all tokens "
        "alike."
    )
