"""Outcomes: every kind of result has a documented, typed set of them."""

from typing import get_args

import pytest

from polyattn.auditing.result import AUDIT_OUTCOMES, AuditName
from polyattn.certify.outcomes import CERTIFICATE_OUTCOMES, Verdict
from polyattn.errors import InvalidInput
from polyattn.fitting.outcomes import FIT_OUTCOMES, FitName
from polyattn.outcome import Meaning, OutcomeSet
from polyattn.softmax.outcomes import SOFTMAX_OUTCOMES, SoftmaxName

SETS = {
    "fit": (FIT_OUTCOMES, FitName),
    "certificate": (CERTIFICATE_OUTCOMES, Verdict),
    "audit": (AUDIT_OUTCOMES, AuditName),
    "softmax": (SOFTMAX_OUTCOMES, SoftmaxName),
}


@pytest.mark.parametrize("kind", SETS)
def test_the_set_is_the_type(kind):
    outcomes, names = SETS[kind]
    assert outcomes.names == get_args(names)
    assert all(meaning.text.endswith(".") for meaning in outcomes.meanings.values())
    assert any(meaning.ok for meaning in outcomes.meanings.values())


def test_what_is_ok_is_said_by_the_set():
    outcomes = OutcomeSet("Thing", {"good": Meaning(True, "Good."), "bad": Meaning(False, "Bad.")})
    assert outcomes("good", "It went well.").ok
    bad = outcomes("bad", "It did not.", "Try again.")
    assert not bad.ok
    assert str(bad) == "It did not. Try again."
    assert outcomes.from_dict(bad.to_dict()) == bad
    assert not outcomes("good", "It went well, but.", doubtful=True).ok
    # A file can take ok away, but not give it.
    assert not outcomes.from_dict(outcomes("good", "So so.", doubtful=True).to_dict()).ok
    assert not outcomes.from_dict(bad.to_dict() | {"ok": True}).ok
    # Files of before hold no ok.
    assert outcomes.from_dict({"name": "bad", "sentence": "a", "next_step": ""}).ok is False


def test_other_names_are_refused():
    outcomes = OutcomeSet("Thing", {"good": Meaning(True, "Good.")})
    with pytest.raises(InvalidInput, match="Thing has no outcome 'bad'; it has good"):
        outcomes("bad", "It did not.")
