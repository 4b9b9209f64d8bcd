"""The sentences of ``learn_softmax``: what was found, what it rests on, what to try next."""

from __future__ import annotations

from typing import Literal

import numpy as np

from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.quoting import counted
from polyattn.softmax.arguments import LEAST_EQUATIONS
from polyattn.softmax.judging.alternatives import Rival
from polyattn.softmax.judging.judge import HeldOutFit
from polyattn.softmax.judging.uncertainty import Uncertainty

SoftmaxName = Literal[
    "recovered", "recovered_on_these_inputs", "ambiguous", "ill_determined", "overfitted",
    "not_recovered", "interrupted", "out_of_time",
]  # fmt: skip

Stop = Literal["interrupted", "out_of_time"]

SOFTMAX_OUTCOMES = OutcomeSet[SoftmaxName](
    "LearnedSoftmax",
    {
        "recovered": Meaning(True, "Held-out examples agree, and the data determine every head."),
        "recovered_on_these_inputs": Meaning(
            False, "Right on inputs like these; other inputs would show what these leave open."
        ),
        "ambiguous": Meaning(False, "Other heads explain tokens like these just as well."),
        "ill_determined": Meaning(False, "Held-out examples agree, but heads are uncertain."),
        "overfitted": Meaning(False, "Training examples fit better than held-out ones."),
        "not_recovered": Meaning(False, "No layer that was found explains the examples."),
        "interrupted": Meaning(False, "Stopped by the user; the best layer so far."),
        "out_of_time": Meaning(False, "Stopped by max_seconds; the best layer so far."),
    },
)

# What a failed test says about the residuals.
SYMPTOMS = {
    "generalises": "held-out examples fit worse than training ones",
    "tails": "their tails are not those of a normal distribution",
    "skew": "they are skewed",
    "sizes": "some sequences have much larger ones than others",
    "outputs": "they are correlated between outputs",
    "linear": "they depend on the tokens",
    "products": "they depend on products of token coordinates",
    "curves": "they depend on the tokens by a curve that no head has",
    "bends": "they depend on the outputs, as if these were squashed or stretched",
    "share": "they make up more than half of the targets",
    "declared": "they are larger than the noise that was declared",
    "few_examples": "there are too few examples to see whether another head explains them",
    "more_heads": "another head explains a part of them",
}

# What "recovered" means for a layer with biases.
CONVENTION = (
    "The last column of attn, which no input shows, is zero, and the heads have equal shares in "
    "the sum of the last rows of value."
)

# What to try first where a method was taken by itself.
UNPOLISHED = (
    "These are the heads of the method by itself: polish=True descends from them, which "
    "often makes them exact. "
)


def describe(
    fit: HeldOutFit,
    bars: Uncertainty,
    n_held_out: int,
    notes: tuple[str, ...],
    rival: Rival | None,
    doubt: str,
    share_of_constant: float = 0.0,
    hint: str = "",
    polished: bool = True,
) -> Outcome[SoftmaxName]:
    """The outcome of a search that ended by itself.

    ``rival`` is another layer of as many heads that explains the examples, ``doubt`` is the reason
    why these do not determine the heads.  ``share_of_constant`` is what a constant beside each
    token explains of residuals that nothing explains, ``hint`` says what explains the examples if
    they are read otherwise, and is then the next step.  Heads that are not ``polished`` are those
    of a method by itself.
    """
    heads = counted(len(bars.attn), "head")
    extra = "".join(f" {note}" for note in notes)
    if fit.below_declared:
        extra += (
            " The residuals are smaller than the noise that was declared; they were judged as if "
            "none had been."
        )
    if not fit.explained:
        unpolished = "" if polished else UNPOLISHED
        advice = _try_bias(share_of_constant)
        return _unexplained(fit, heads, extra, unpolished + advice, hint)
    if rival is not None and rival.name == "two_valued":
        return SOFTMAX_OUTCOMES(
            "ambiguous",
            f"A layer of {heads} explains the held-out examples, but tokens like these cannot tell "
            f"heads {_numbered(rival.heads)} from others: they have equal values, and the queries "
            f"are so few that other heads have the same logits, in another order.{extra}",
            "On such tokens the function is right; tokens of more values would settle the heads.",
        )
    if doubt:
        return SOFTMAX_OUTCOMES(
            "ill_determined",
            f"A layer of {heads} explains the held-out examples, but they do not determine it: "
            f"{doubt}.{extra}",
            hint or "More examples help, or tokens that vary more; a tiny head may be spurious.",
        )
    agreement = _agreement(fit, n_held_out)
    if rival is not None or bars.n_open:
        return SOFTMAX_OUTCOMES(
            "recovered_on_these_inputs",
            f"Recovered on these inputs only: {heads}. {agreement}, but {_gap(bars, rival)}. "
            f"Other inputs would show them, and there this layer may be wrong.{extra}",
            "On inputs like these the outputs are right. To determine the rest, add examples with "
            "tokens that vary independently in every coordinate, in sequences of three or more.",
        )
    if fit.kind == "exact":
        return SOFTMAX_OUTCOMES("recovered", f"Recovered: {heads}. {agreement}.{extra}", "")
    return SOFTMAX_OUTCOMES(
        "recovered",
        f"Recovered up to noise: {heads}. {agreement}; attn and value of every "
        f"head are expected to be right to {percent(bars.worst)}. Heads that differ by less "
        f"than the noise shows count as one.{extra}",
        "More examples shrink the error bars (attn_std, value_std)."
        if fit.kind == "declared"
        else "That the residuals are noise is a conclusion of tests; pass noise=... if its size "
        "is known. More examples shrink the error bars (attn_std, value_std).",
    )


def doubt_of(
    fit: HeldOutFit,
    bars: Uncertainty,
    equations: tuple[int, int],
    redundant: bool,
    unexamined: tuple[int, ...],
) -> str:
    """Why examples that heads explain do not determine them; empty where they do.

    ``equations`` are the numbers and unknowns of inputs that differ; ``redundant`` heads are told
    apart by no input, ``unexamined`` ones may be paired otherwise.
    """
    n_equations, n_unknowns = equations
    doubt = ""
    if not fit.converged:
        doubt = f"descent crept to an error of {fit.validation_error:.1e} and no further"
    elif not fit.all_needed:
        doubt = "one head fewer explains as much, up to the noise"
    elif not fit.well_determined(bars):
        doubt = f"attn or value of a head is uncertain by {percent(bars.in_determined)}"
    elif n_equations < n_unknowns * LEAST_EQUATIONS:
        doubt = (
            f"inputs that differ give {n_equations} numbers for {n_unknowns} unknowns, so other "
            "heads may explain them as well"
        )
    elif redundant:
        doubt = "heads are so nearly equal, or so small, that no input tells them apart"
    elif unexamined:
        doubt = (
            f"heads {_numbered(unexamined)} have equal values, and there are too many ways to "
            "give others the same logits at these queries to try all"
        )
    return doubt


def stopped(
    why: Stop, error: float, n_heads: int, share_of_constant: float = 0.0
) -> Outcome[SoftmaxName]:
    """The outcome of a search that was ended from outside."""
    over = "The time that max_seconds allows is over"
    reason = "The search was interrupted" if why == "interrupted" else over
    return SOFTMAX_OUTCOMES(
        why,
        f"{reason}; the best layer so far has {counted(n_heads, 'head')} and leaves "
        f"{percent(error)} of the held-out outputs unexplained.",
        _try_bias(share_of_constant)
        + "Nothing is lost: go on with more time, or use the layer as it is.",
    )


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage of so many digits; up to a million without an exponent."""
    number = 100 * share
    short = f"{number:.{digits}g}"
    return f"{number:.0f} %" if "e+" in short and number < 1e6 else f"{short} %"


def _unexplained(
    fit: HeldOutFit, heads: str, extra: str, first: str, hint: str
) -> Outcome[SoftmaxName]:
    if fit.failed == ("generalises",):
        return SOFTMAX_OUTCOMES(
            "overfitted",
            f"Not recovered: the best layer of {heads} leaves {percent(fit.validation_error)} "
            f"of the held-out outputs, more than of the training ones.{extra}",
            hint
            or f"{first}There are too few examples for so many heads: give more examples, or fewer "
            "heads.",
        )
    symptoms = "; ".join(SYMPTOMS[name] for name in fit.failed)
    return SOFTMAX_OUTCOMES(
        "not_recovered",
        f"Not recovered: the best layer of {heads} that was found leaves "
        f"{percent(fit.validation_error)} of the held-out outputs unexplained, and these "
        f"residuals are not plain noise ({symptoms}).{extra}",
        hint
        or f"{first}Try more examples, more heads (n_heads), method='sculpt' or another "
        "random_state; where inputs can be chosen, learn_from_queries needs no luck. "
        "If the targets are noisy in such a way, say so with noise=... .",
    )


def _try_bias(share_of_constant: float) -> str:
    """The advice to learn a layer with biases, where a constant explains a part of what is left."""
    if not share_of_constant:
        return ""
    return (
        "Try bias=True: a constant coordinate beside each token explains "
        f"{percent(share_of_constant)} of the squared residuals at once. "
    )


def _agreement(fit: HeldOutFit, n_held_out: int) -> str:
    """What the held-out examples showed, without a full stop."""
    if fit.kind == "exact":
        return (
            f"Outputs of {n_held_out} sequences that were held out agree to "
            f"{fit.validation_error:.1e} of their size"
        )
    source = "that was declared" if fit.kind == "declared" else "that the residuals show"
    return (
        f"On {n_held_out} held-out sequences nothing is left but noise {source}, "
        f"{percent(fit.validation_error)} of the targets"
    )


def _gap(bars: Uncertainty, rival: Rival | None) -> str:
    """What the examples leave open: signs that two tokens do not show, or directions."""
    if rival is not None:
        return (
            f"the signs of heads {_numbered(rival.heads)} are open: the weights of two tokens are "
            "p and 1 - p, so attn A with value V and -A with -V differ by a mean of the tokens "
            "alone, which other heads make up for"
        )
    parts = []
    for name, errors in (("attn", bars.attn_error), ("value", bars.value_error)):
        heads = [str(h + 1) for h in np.flatnonzero(np.isinf(errors))]
        if heads:
            plural = "s" if len(heads) > 1 else ""
            parts.append(f"{name} of head{plural} {', '.join(heads)}")
    of_which = "; ".join(parts)
    return f"the examples leave {bars.n_open} of {bars.n_parameters} directions ({of_which}) open"


def _numbered(heads: tuple[int, ...]) -> str:
    """Heads as they are counted in sentences, from 1."""
    *most, last = [str(head + 1) for head in heads]
    return f"{', '.join(most)} and {last}" if most else last
