"""Forms: what they mean, how they are compared and shown."""

import copy

import joblib
import numpy as np
import pytest

from form_cases import CASES, named
from polyattn.errors import InvalidInput
from polyattn.form import Form, maps
from polyattn.form.form import Scale
from polyattn.form.layout import Layout
from polyattn.sequences import MODES

FORMS = {case.name: case.form for case in CASES if case.kind == "equal"}

# What a form means ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "scales"),
    [
        ({}, [(0, None, 1.0)]),
        ({"include_query": False}, [(1, None, 1.0)]),
        ({"window": 4}, [(0, 4, 1.0)]),
        ({"window": 4, "include_query": False, "decay": 0.5}, [(1, 4, 0.5)]),
        ({"decay": [0.5, 0.9]}, [(0, None, 0.5), (0, None, 0.9)]),
        ({"lags": 2}, [(0, 1, 1.0), (1, 2, 1.0), (2, None, 1.0)]),
        ({"lags": 2, "include_query": False}, [(1, 2, 1.0), (2, None, 1.0)]),
        ({"lags": 1, "include_query": False}, [(1, None, 1.0)]),
        ({"lags": 2, "window": 4}, [(0, 1, 1.0), (1, 2, 1.0), (2, 4, 1.0)]),
        ({"lags": 2, "window": 2}, [(0, 1, 1.0), (1, 2, 1.0)]),
        ({"lags": 5, "window": 1}, [(0, 1, 1.0)]),
    ],
    ids=named,
)
def test_scales(chosen, scales):
    assert Form(**chosen).scales == tuple(Scale(*each) for each in scales)


def test_a_decay_that_is_still_to_be_chosen_has_no_scales():
    with pytest.raises(InvalidInput, match="decay='loo' is chosen by fit"):
        _ = Form(decay="loo").scales


@pytest.mark.parametrize("given", [0.5, np.float32(0.5), np.array(0.5), np.float64(0.5)])
def test_a_decay_may_be_any_real_number(given):
    assert Form(decay=given) == Form(decay=0.5)
    assert (
        Form(decay=[float(given), 1]) == Form(decay=np.array([0.5, 1.0])) == Form(decay=(0.5, 1.0))
    )


def test_coordinates_may_be_given_in_any_way():
    for way in ([0, 1], (0, 1), range(2), np.arange(2), np.arange(2, dtype=np.uint8)):
        assert Form(key=way) == Form(key=[0, 1])
    assert Form(value=2) == Form(value=np.int64(2)) == Form(value=[2])
    assert Form(value=slice(np.int64(0), 2)) == Form(value=slice(0, 2))
    same = [Layout.of(Form(value=way), 3) for way in ([-1], [2], slice(2, 3), slice(-1, None))]
    assert {layout.pairs for layout in same} == {same[0].pairs}


def test_which_form_is_plain():
    papers = {Form(mode=mode, bias=bias) for mode in MODES for bias in (False, True)}
    assert len(papers) == 6
    for form in FORMS.values():
        assert form.is_plain == (form in papers)


# Comparing, showing ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
def test_forms_are_equal_by_content(name):
    one, other = (case for case in CASES if case.name == name and case.kind in ("equal", "ragged"))
    assert one.form is not other.form
    assert one.form == other.form
    assert hash(one.form) == hash(other.form)
    assert one.layout is other.layout
    assert one.form != name


def test_different_forms_are_not_equal():
    apart = [case.form for case in CASES if case.kind == "equal" and not case.n_context_dims]
    assert len(set(apart)) == len(apart)


def test_equality_looks_at_all_of_a_matrix():
    one, other = np.ones((2, 2)), np.ones((2, 2))
    other[1, 1] = 1.0 + 1e-16
    assert Form(key=one) == Form(key=other)  # the same float
    other[1, 1] = 1.0 + 3e-16
    assert Form(key=one) != Form(key=other)
    assert Form(key=np.zeros((1, 2))) == Form(key=-np.zeros((1, 2)))
    assert Form(key=np.ones((1, 4))) != Form(key=np.ones((4, 1)))
    assert Form(key=[0, 1]) != Form(key=[1, 0])
    assert Form(key=slice(0, 2)) != Form(key=[0, 1])


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Form(), "Form()"),
        (Form(mode="causal", decay=[0.5, 1]), "Form(mode='causal', decay=(0.5, 1.0))"),
        (Form(value=slice(2, None), mean=True), "Form(mean=True, value=slice(2, None, None))"),
        (Form(query=np.ones((4, 2))), "Form(query=matrix of shape (4, 2))"),
        (Form(key=maps.elu1()), "Form(key=elu1())"),
        (Form(key=range(9)), "Form(key=(0, 1, 2, 3, 4, 5, 6, 7, 8))"),
        (
            Form(key=maps.polynomial(2), bias=True),
            "Form(key=polynomial(degree=2, include_lower=True), bias=True)",
        ),
    ],
)
def test_a_form_is_shown_by_what_was_chosen(form, text):
    assert repr(form) == text


def test_a_form_cannot_be_changed():
    matrix = np.ones((3, 2))
    form = Form(query=matrix)
    with pytest.raises(AttributeError):
        form.mode = "full"
    with pytest.raises(ValueError, match="read-only"):
        form.query[0, 0] = 2.0
    matrix[0, 0] = 2.0
    assert form == Form(query=np.ones((3, 2)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_an_equal_form_that_cannot_be_changed(copied):
    form = Form(mode="causal", query=np.ones((3, 2)), key=maps.hedgehog(), decay=[0.5, 1])
    again = copied(form)
    assert again == form
    assert hash(again) == hash(form)
    assert not again.query.flags.writeable
    assert Layout.of(again, 3) is Layout.of(form, 3)


@pytest.mark.parametrize("name", FORMS)
def test_use_does_not_change_what_is_copied(name):
    """Caches of results are found again by the hash of their arguments, which joblib takes so."""
    form = copy.copy(FORMS[name])
    before = joblib.hash(form)
    _ = hash(form), form.is_plain, form.scales
    assert joblib.hash(form) == before
