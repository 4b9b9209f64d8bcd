"""SoftmaxAttention against the literal law, in every form of input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.model import forward_softmax
from polyattn.reference.layer import with_constant
from polyattn.reference.softmax import softmax_forward
from polyattn.sequences import MODES


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
@given(seed=st.integers(0, 10**6), small_blocks=st.booleans())
def test_forward_is_the_law(mode, bias, seed, small_blocks):
    rng = np.random.default_rng(seed)
    n_heads, n_dims, n_outputs = rng.integers(1, 4, size=3)
    attn = rng.standard_normal((n_heads, n_dims + bias, n_dims + bias)) * 10.0 ** rng.integers(
        -3, 3
    )
    value = rng.standard_normal((n_heads, n_dims + bias, n_outputs))
    X = [rng.standard_normal((length, n_dims)) for length in rng.integers(1, 6, size=4)]
    expected = [softmax_forward(attn, value, with_constant(x) if bias else x, mode) for x in X]
    with pytest.MonkeyPatch.context() as patch:
        if small_blocks:
            patch.setattr(forward_softmax, "BLOCK_LOGITS", 2)
        found = pa.SoftmaxAttention(attn, value, mode, bias)(X)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(value).sum())
