"""Linear layers of any form for tests: by the reference, and with some parts exchanged."""

import numpy as np

import polyattn as pa
from form_cases import CASES
from polyattn.reference import forms as reference

EPS = float(np.finfo(np.float64).eps)

# One kind of data is enough where nothing depends on the lengths.
EACH_FORM = [case for case in CASES if case.kind == "ragged"]


def literal(layer: pa.LinearAttention, X: np.ndarray, Z: np.ndarray | None = None) -> np.ndarray:
    """Outputs (rows, e) of one sequence by the reference."""
    form = {name: getattr(layer.form, name) for name in reference.DEFAULTS}
    more = (layer.head_scales, layer.skip, layer.intercept)
    return np.atleast_2d(reference.forward(layer.attn, layer.value, X, form, Z, *more))


def joined(outputs) -> np.ndarray:
    return np.concatenate(outputs) if isinstance(outputs, list) else outputs


def close(found, expected, factor=1e3) -> None:
    size = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=factor * EPS * size)


def replace_heads(layer, attn, value, **others):
    content = {"skip": layer.skip, "intercept": layer.intercept, **others}
    return pa.LinearAttention(
        attn, value, form=layer.form, n_dims=layer.n_dims, n_context_dims=layer.n_context_dims,
        head_scales=layer.head_scales, **content,
    )  # fmt: skip
