"""Arguments of other libraries given to ``fit``: the error says what takes their place."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

X, Y = np.ones((3, 2, 2)), np.ones(3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mask": 1}, r"window.*beyond_linear\.md"),
        ({"attention_mask": 1}, "'attention_mask'.*include_query"),
        ({"gate": 1}, r"decay.*beyond_linear\.md"),
        ({"n_layers": 2}, "convex"),
        ({"normalize": True}, "mean=True"),
        ({"mode": "cross"}, r"context=Z.*beyond_linear\.md"),
    ],
)
def test_what_cannot_be_expressed_is_answered(given, said):
    with pytest.raises(InvalidInput, match=said):
        pa.fit(X, Y, **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"decay": 0.9}, r"Form\(decay=\.\.\.\)"), ({"lambda_": 1}, "unexpected keyword")],
)
def test_other_arguments_are_refused_as_by_python(given, said):
    with pytest.raises(InvalidType, match=said):
        pa.fit(X, Y, **given)


def test_the_page_is_there(request):
    page = request.config.rootpath / "docs/guides/beyond_linear.md"
    assert page.read_text(encoding="utf-8").startswith("# What the layer cannot express")
