"""Planted tasks of every form."""

import numpy as np
import pytest

import polyattn as pa
from form_layers import EACH_FORM, close, joined, literal
from polyattn.errors import InvalidInput
from polyattn.form import Form
from polyattn.sequences import MODES


@pytest.mark.parametrize("case", EACH_FORM, ids=str)
def test_planted_layers_of_every_form(case):
    task = pa.data.planted(
        4, (1, 6), case.n_dims, 2, 2, random_state=5,
        form=case.form, n_context_dims=case.n_context_dims,
    )  # fmt: skip
    layer = task.layer
    assert (layer.form, layer.n_dims, layer.n_outputs) == (case.form, case.n_dims, 2)
    assert layer.n_heads == 2 * layer.layout.n_scales
    assert (task.context is None) == (case.n_context_dims is None)
    beside = [None] * 4 if task.context is None else list(task.context)
    expected = [literal(layer, x, z) for x, z in zip(task.X, beside, strict=True)]
    close(joined(task.Y), np.concatenate(expected))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_a_plain_form_plants_what_mode_and_bias_do(mode, bias):
    sizes = (5, 4, 3, 2, 2)
    one = pa.data.planted(*sizes, mode, 0.1, 3, bias=bias)
    other = pa.data.planted(*sizes, noise=0.1, random_state=3, form=Form(mode=mode, bias=bias))
    assert one.layer == other.layer
    np.testing.assert_array_equal(one.X, other.X)
    np.testing.assert_array_equal(one.Y, other.Y)
    assert one.context is None


def test_planted_contexts():
    form = Form(mode="causal", decay=0.5)
    equal = pa.data.planted(5, 4, 3, form=form, n_context_dims=2)
    assert equal.context.shape == (5, 4, 2)
    ragged = pa.data.planted(50, (1, 9), 3, form=form, n_context_dims=2, noise=0.1)
    np.testing.assert_array_equal(ragged.context.lengths, ragged.X.lengths)
    free = pa.data.planted(50, (1, 9), 3, form=Form(mode="full"), n_context_dims=2)
    assert np.any(free.context.lengths != free.X.lengths)
    short = pa.data.planted(5, 4, 3, mode="full", n_context_dims=2)
    assert (short.layer.form, short.layer.n_context_dims) == (Form(mode="full"), 2)
    with pytest.raises(InvalidInput, match="mode='full' was given beside a form"):
        pa.data.planted(5, 4, 3, mode="full", form=form)
    with pytest.raises(InvalidInput, match="n_context_dims must be an integer"):
        pa.data.planted(5, 4, 3, n_context_dims=0)
