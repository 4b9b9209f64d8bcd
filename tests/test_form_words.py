"""A form in words: nothing is rounded to another form, and only equal maps are said to be equal."""

import numpy as np
import pytest

from polyattn.form import Form, Layout, maps
from polyattn.form.in_words import form_in_words, scale_in_words


def swish(tokens):
    return tokens / (1 + np.exp(-tokens))


WEIGHTS = np.eye(3)[:, :2]


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"decay": 1 / 3}, "decay 0.3333"),
        ({"decay": 1.0}, "decay 1"),
        ({"decay": 0.99999}, "decay 0.99999"),
        ({"decay": 1 - 2**-53}, "decay 0.9999999999999999"),
        ({"decay": [0.99991, 0.99992, 1]}, "decays 0.99991, 0.99992 and 1"),
        ({"key": WEIGHTS, "value": WEIGHTS}, "key and value: matrix (3, 2)"),
        ({"key": WEIGHTS, "value": -WEIGHTS}, "key: matrix (3, 2), value: matrix (3, 2)"),
        (
            {"query": maps.hedgehog(WEIGHTS), "key": maps.hedgehog(-WEIGHTS)},
            "query: hedgehog(weights=3x2 matrix), key: hedgehog(weights=3x2 matrix)",
        ),
        ({"query": swish, "value": swish}, "query and value: function swish"),
    ],
)
def test_a_form_in_words(chosen, words):
    assert form_in_words(Layout.of(Form(**chosen), 3)) == words


def test_scales_of_nearly_equal_decays():
    form = Form(decay=[0.9999999, 0.99999991])
    assert [scale_in_words(form, i) for i in (0, 1)] == ["decay 0.9999999", "decay 0.99999991"]
