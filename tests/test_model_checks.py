"""Linear layers of every form in files, and what is refused: wrong records and arguments."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from form_cases import square
from form_layers import EACH_FORM
from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.form import Form
from polyattn.form.form import Scale


@pytest.mark.parametrize("case", EACH_FORM, ids=str)
def test_files_hold_every_form(case, tmp_path):
    layer = case.layer()
    path = tmp_path / "layer.safetensors"
    if case.name == "own-function":
        with pytest.raises(InvalidInput, match=r"function of your own.*cannot be stored"):
            pa.save(layer, path)
        assert not path.exists()
        return
    pa.save(layer, path)
    loaded = pa.load(path)
    assert loaded == layer
    assert loaded.form == layer.form
    np.testing.assert_array_equal(loaded.coef, layer.coef)


def test_records_of_the_papers_layer_are_as_before():
    layer = pa.data.random_layer(3, mode="full", bias=True)
    assert layer.to_record().metadata == {"mode": "full", "bias": True}
    assert set(layer.to_record().arrays) == {"attn", "value"}
    assert pa.LinearAttention.from_record(layer.to_record()) == layer


WRONG = {
    "form": ({"decay": 0.0}, "describes no form"),
    "form ": ({"mode": "causal"}, "form.mode"),
    "form  ": ("decay", "form must be an object"),
    "form   ": ({"colour": 1}, "describes no form"),
    "form    ": ({"query": 7}, "describes no form"),
    "n_dims": (0, "n_dims must be an integer >= 1"),
    "n_dims ": (5, "attn must have shape"),
    "n_context_dims": (-1, "n_context_dims must be an integer"),
    "head_scales": ([0, 9], "head_scales must lie between"),
    "head_scales ": ([0], "head_scales must be"),
    "head_scales  ": ([0, "1"], r"head_scales\[1\] must be an integer"),
    "colour": (1, "unknown field"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_records_are_refused(name):
    layer = pa.data.random_layer(3, form=Form(decay=[0.5, 0.9], skip=True))
    record, (content, message) = layer.to_record(), WRONG[name]
    assert pa.LinearAttention.from_record(record) == layer
    wrong = replace(record, metadata=record.metadata | {name.strip(): content})
    with pytest.raises((FileFormatError, InvalidInput), match=message):
        pa.LinearAttention.from_record(wrong)
    for arrays in ({"skip": np.zeros(3)}, {"intercept": np.zeros(3)}, {"other": np.zeros(3)}):
        with pytest.raises((FileFormatError, InvalidInput), match=next(iter(arrays))):
            pa.LinearAttention.from_record(replace(record, arrays=record.arrays | arrays))


ATTN, VALUE = np.ones((2, 3, 3)), np.ones((2, 3, 1))
TWO = Form(mode="causal", decay=[0.5, 0.9])

MISUSE = {
    "twice": ({"mode": "full", "form": Form()}, "mode was given beside a form"),
    "no form": ({"form": "last"}, "form must be a polyattn.Form"),
    "loo": ({"form": Form(decay="loo")}, "decay='loo' is chosen by fit"),
    "scales missing": ({"form": TWO}, "give head_scales"),
    "scales short": ({"form": TWO, "head_scales": [0]}, "2 integers, one for each head"),
    "scales large": ({"form": TWO, "head_scales": [0, 2]}, "between 0 and 1"),
    "scales floats": ({"form": TWO, "head_scales": [0.0, 1.0]}, "2 integers"),
    "skip": ({"skip": np.ones((3, 1))}, r"skip was given.*Form\(skip=True\)"),
    "intercept": ({"intercept": [1.0]}, r"Form\(intercept=True\)"),
    "skip shape": ({"form": Form(skip=True), "skip": np.ones(3)}, r"shape \(3, 1\)"),
    "skip nan": ({"form": Form(skip=True), "skip": np.full((3, 1), np.nan)}, "skip contains NaN"),
    "intercept shape": ({"form": Form(intercept=True), "intercept": 1.0}, r"shape \(1,\)"),
    "widths": ({"form": Form(key=[0, 1])}, r"attn must have shape \(H, 3, 2\).*got \(2, 3, 3\)"),
    "constants": ({"form": Form(bias=True, key=[0])}, "constants included"),
    "n_dims": ({"form": Form(query=[0], key=[1], value=[2])}, "give n_dims"),
    "n_dims 4": ({"n_dims": 4}, r"attn must have shape \(H, 4, 4\)"),
    "n_dims 0": ({"n_dims": 0}, "n_dims must be an integer of at least 1"),
    "context 0": ({"n_context_dims": 0}, "n_context_dims must be an integer"),
    "coordinates": ({"form": Form(value=[7])}, "value must name coordinates"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_of_layers_is_named(name):
    arguments, message = MISUSE[name]
    with pytest.raises((InvalidInput, InvalidType), match=message):
        pa.LinearAttention(ATTN, VALUE, **arguments)


def test_numbers_of_heads_must_agree():
    with pytest.raises(InvalidInput, match=r"got \(2, 3, 3\) and \(1, 3, 1\)"):
        pa.LinearAttention(ATTN, VALUE[:1], form=Form(mean=True))


def test_misuse_of_context_is_named():
    plain = pa.data.random_layer(3, form=Form(mode="causal"))
    beside = pa.data.random_layer(3, form=Form(mode="causal"), n_context_dims=2)
    X, Z = np.ones((4, 5, 3)), np.ones((4, 5, 2))
    with pytest.raises(InvalidInput, match="it takes no context"):
        plain(X, context=Z)
    with pytest.raises(InvalidInput, match="give them as context"):
        beside(X)
    with pytest.raises(InvalidInput, match="context must have tokens of 2 coordinates; got 3"):
        beside(X, context=X)
    with pytest.raises(InvalidInput, match="X has 4 sequences but context has 3"):
        beside(X, context=Z[:3])
    with pytest.raises(InvalidInput, match="sequence 0 has 5 tokens in X but 4 in context"):
        beside(X, context=Z[:, :4])
    with pytest.raises(InvalidInput, match=r"context must have shape .*One sequence is"):
        beside(X, context=Z[0])
    with pytest.raises(InvalidInput, match="X has 1 sequence but context has 4"):
        beside(X[0], context=Z)
    with pytest.raises(InvalidInput, match="contains NaN or infinity"):
        beside(X, context=Z * np.nan)


def test_maps_that_fail_are_named():
    layer = pa.data.random_layer(2, form=Form(key=square))
    with pytest.raises(InvalidInput, match="X must have tokens of 2 coordinates"):
        layer(np.ones((3, 4, 3)))
    wild = pa.data.random_layer(2, form=Form(key=lambda x: np.where(x > 5, np.nan, x)))
    with pytest.raises(InvalidInput, match="NaN or infinity"):
        wild(np.full((1, 2, 2), 9.0))


def test_scales():
    assert Scale(0, None).attended(4) == slice(0, 4)
    assert Scale(1, 3).attended(4) == slice(1, 3)
    assert Scale(2, 3).attended(1) == slice(0, 0)
    assert Scale(0, None).weights(np.arange(3)) is None
    np.testing.assert_array_equal(Scale(0, None, 0.5).weights(np.arange(3)), [1, 0.5, 0.25])
