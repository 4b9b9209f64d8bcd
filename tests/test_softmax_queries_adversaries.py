"""No claim about an oracle is wrong by more than its error bars, whatever is behind it."""

from __future__ import annotations

import numpy as np
import pytest

from adversarial_oracles import Case, cases, violation
from polyattn import learn_from_queries
from polyattn.errors import InvalidInput

# So many standard errors a claim may be wrong by.
MOST = 5.0

ALL = list(cases())

# One of most kinds, where it is neither invisible nor obvious.
QUICK = [
    case
    for case in ALL
    if case.size in (1e-6, 1e-1, 2.0, 1e2)
    and case.kind
    in (
        "square of the token", "squashed", "positions in values", "gate", "batch", "counter",
        "cache", "steps of the answers", "bias not asked for", "clipped", "distances in logits",
        "square of the token, bfloat16", "distances in logits, bfloat16", "small attn",
        "perceptron",
    )
]  # fmt: skip


def examine(case: Case) -> None:
    try:
        with np.errstate(all="ignore"):
            result = learn_from_queries(
                case.make(), case.n_dims, **{"max_queries": 20_000, **case.options}
            )
    except InvalidInput:
        # The very first answer cannot be used: nothing is claimed.
        return
    assert violation(case, result) <= MOST, (case.name, result.outcome)


def test_there_are_many():
    assert len(ALL) >= 200
    assert len({case.kind for case in ALL}) >= 40


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_no_claim_is_wrong_by_more_than_its_bars(case):
    examine(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_no_claim_about_any_of_them_is_wrong_by_more_than_its_bars(case):
    examine(case)


def test_the_measure_of_violations_sees_wrong_claims():
    """Negative control: the bars of a right answer, made too small, no longer hold."""
    case = next(case for case in ALL if case.kind == "bfloat16 answers")
    result = learn_from_queries(case.make(), case.n_dims)
    assert violation(case, result) <= MOST
    object.__setattr__(result, "attn_error", result.attn_error / 30)
    assert violation(case, result) > MOST
    none = Case("none", 0.0, case.make)
    assert violation(none, result) < MOST
    object.__setattr__(result, "value_error", result.value_error / 1e3)
    object.__setattr__(result, "attn_error", result.attn_error / 1e3)
    object.__setattr__(result, "noise", result.noise / 1e3)
    assert violation(none, result) > MOST
