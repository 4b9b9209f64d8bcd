"""Arguments of other libraries: the error of ``fit``, forms and estimators says what to write."""

import inspect

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

X, Y = np.ones((3, 2, 2)), np.ones(3)


def fit(**given):
    return pa.fit(X, Y, **given)


CALLERS = [fit, pa.Form, pa.LinearAttentionRegressor, pa.LinearAttentionClassifier]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mask": 1}, r"has no argument 'mask'.*window.*beyond_linear\.md"),
        ({"attention_mask": 1}, "'attention_mask'.*include_query"),
        ({"gate": 1}, r"decay.*beyond_linear\.md"),
        ({"softmax": True}, r"pa\.learn_softmax"),
        ({"n_layers": 2}, "convex"),
        ({"normalize": True}, "mean=True"),
    ],
)
def test_what_cannot_be_expressed_is_answered(caller, given, said):
    with pytest.raises(InvalidInput, match=said):
        caller(**given)


def test_cross_attention_is_no_mode():
    with pytest.raises(InvalidInput, match=r"context=Z.*beyond_linear\.md"):
        fit(mode="cross")


@pytest.mark.parametrize("caller", [fit, *CALLERS[2:]])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"decay": 0.9}, r"Form\(decay=\.\.\.\)"),
        ({"heads": 1}, r"keyword argument 'heads'; give n_heads instead\."),
        ({"causal": True}, "give mode='causal'"),
        ({"is_causal": True}, "give mode='causal'"),
        ({"alpha": 1}, r"give ridge instead"),
        ({"lambda_": 1}, r"give ridge instead"),
        ({"window_size": 4}, r"give form=Form\(window=\.\.\.\)"),
        ({"ridgee": 1}, r"give ridge instead"),
        ({"decays": [1]}, r"give form=Form\(decay=\.\.\.\)"),
        ({"xyzzy": 1}, "unexpected keyword argument 'xyzzy'.$"),
    ],
)
def test_what_has_another_name_is_named(caller, given, said):
    with pytest.raises(InvalidType, match=said):
        caller(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"windows": 3}, r"Form got an unexpected keyword argument 'windows'; give window instead"),
        ({"causal": True}, "give mode='causal'"),
        ({"heads": 2}, r": fit takes n_heads"),
        ({"xyzzy": 1}, "'xyzzy'.$"),
    ],
)
def test_forms_name_their_own_arguments(given, said):
    with pytest.raises(InvalidType, match=said):
        pa.Form(**given)


def test_signatures_stay():
    assert list(inspect.signature(pa.Form).parameters)[:2] == ["mode", "include_query"]
    assert "loss" in pa.LinearAttentionClassifier().get_params()
    assert "loss" not in pa.LinearAttentionRegressor().get_params()


def test_the_page_is_there(request):
    page = request.config.rootpath / "docs/guides/beyond_linear.md"
    assert page.read_text(encoding="utf-8").startswith("# What the layer cannot express")
