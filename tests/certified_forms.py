"""Forms whose certificates are tested, data for them, and their features in fractions."""

from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest

from polyattn.form import Form, Layout
from polyattn.reference import forms as reference

MATRIX = np.array([[0.5, -1.25], [1.0, 0.1], [-0.75, 3.0]])

FORMS = {
    "plain": Form(),
    "others": Form(include_query=False),
    "others, full": Form(mode="full", include_query=False, mean=True, skip=True),
    "window": Form(mode="causal", window=2),
    "decay": Form(mode="causal", decay=0.9),
    "two decays": Form(decay=[0.5, 0.3]),
    "lags": Form(lags=2),
    "lags of others": Form(mode="causal", lags=2, include_query=False, intercept=True),
    "coordinates": Form(query=[0, 1], key=[0, 1], value=[2]),
    "matrix": Form(mode="causal", key=MATRIX, value=[0, 1], decay=0.7, window=3, bias=True),
    "matrix query": Form(query=MATRIX, mean=True, intercept=True, skip=True),
    "bias and skip": Form(mean=True, skip=True, bias=True),
}
WITH_CONTEXT = ["plain", "window", "coordinates", "matrix", "matrix query"]

CASES = [(name, False) for name in FORMS] + [(name, True) for name in WITH_CONTEXT]
cases = pytest.mark.parametrize(("name", "has_context"), CASES)


def some_data(has_context, rng, n_sequences=120, draw=None, length=5):
    """Sequences of three coordinates, and a context of three, or None."""
    draw = draw or rng.standard_normal
    X = draw((n_sequences, length, 3))
    return X, draw((n_sequences, length, 3)) if has_context else None


def layout_of(form, has_context):
    return Layout.of(form, 3, 3 if has_context else None)


def rational_rows(form, X, context=None):
    """Every row of psi in fractions, by the reference."""
    given = {each.name: getattr(form, each.name) for each in fields(form)}
    for name in ("query", "key", "value"):
        if isinstance(given[name], np.ndarray):
            given[name] = as_fractions(given[name])
    if form.decay is not None:
        several = isinstance(form.decay, tuple)
        given["decay"] = [*map(Fraction, form.decay)] if several else Fraction(form.decay)
    rows = []
    for i, tokens in enumerate(X):
        other = None if context is None else as_fractions(context[i])
        for S, u in reference.summaries(as_fractions(tokens), given, other):
            # Means of constants come as floats.
            sums = [Fraction(x).limit_denominator(99) if isinstance(x, float) else x for x in S]
            rows.append(list(reference.features(np.array(sums), u, given)))
    return rows


def as_fractions(numbers):
    array = np.empty(np.shape(numbers), dtype=object)
    for place, number in np.ndenumerate(np.asarray(numbers)):
        array[place] = Fraction(number.item())
    return array


def prompts(rng, n_prompts=400, n_tokens=6, n_dims=3):
    """In-context regression: the last token asks, and its label is 0."""
    X = rng.standard_normal((n_prompts, n_tokens, n_dims + 1))
    tasks = rng.standard_normal((n_prompts, n_dims))
    X[..., -1] = np.einsum("pnd,pd->pn", X[..., :-1], tasks)
    Y = X[:, -1, -1:].copy()
    X[:, -1, -1] = 0.0
    return X, Y
