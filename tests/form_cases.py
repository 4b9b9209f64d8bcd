"""Forms of every kind with small data: one choice at a time, and twenty random combinations.

``CASES`` holds each form with each kind of data.  A form is made for tokens of ``n_dims``
coordinates, since the coordinates that it names depend on them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.form import Form, maps
from polyattn.form.layout import Layout
from polyattn.model import LinearAttention
from polyattn.reference import forms as reference
from polyattn.sequences import MODES, SequenceBatch

N_RANDOM = 20

#: Kinds of data: lengths of sequences, and the coordinates of their tokens.
KINDS = {
    "equal": ([6, 6, 6], 3),
    "ragged": ([5, 1, 8, 3], 3),
    "single": ([1, 1], 3),
    "narrow": ([4, 2, 6], 1),
}


@dataclass(frozen=True)
class Case:
    """A form with sequences, with a context where tokens attend to one, and with heads."""

    name: str
    kind: str
    form: Form
    n_dims: int
    n_context_dims: int | None

    def __str__(self) -> str:
        return f"{self.name}-{self.kind}"

    @property
    def layout(self) -> Layout:
        return Layout.of(self.form, self.n_dims, self.n_context_dims)

    @property
    def plain(self) -> dict[str, Any]:
        """The fields of the form, as the reference takes them."""
        return {each.name: getattr(self.form, each.name) for each in fields(self.form)}

    @cached_property
    def sequences(self) -> list[NDArray]:
        lengths, n_dims = KINDS[self.kind]
        rng = np.random.default_rng(7)
        return [rng.standard_normal((length, n_dims)) for length in lengths]

    @cached_property
    def contexts(self) -> list[NDArray | None]:
        """As long as the sequences in mode causal, and otherwise of any length."""
        if self.n_context_dims is None:
            return [None] * len(self.sequences)
        rng = np.random.default_rng(8)
        extra = 0 if self.form.mode == "causal" else 2
        shapes = [
            (len(tokens) + extra * (i % 2), self.n_context_dims)
            for i, tokens in enumerate(self.sequences)
        ]
        return [rng.standard_normal(shape) for shape in shapes]

    @property
    def batch(self) -> SequenceBatch:
        return SequenceBatch.from_sequences(self.sequences)

    @property
    def context(self) -> SequenceBatch | None:
        return None if self.n_context_dims is None else SequenceBatch.from_sequences(self.contexts)

    def heads(self, n_heads: int = 2, n_outputs: int = 2, seed: int = 0) -> dict[str, Any]:
        """Random attn, value, head_scales, skip and intercept of a layer of this form."""
        layout, form = self.layout, self.form
        n_queries = len(layout.query)
        rng = np.random.default_rng(seed)
        return {
            "attn": rng.standard_normal((n_heads, n_queries, layout.pairs.n_keys)),
            "value": rng.standard_normal((n_heads, layout.pairs.n_values, n_outputs)),
            "head_scales": rng.integers(layout.n_scales, size=n_heads),
            "skip": rng.standard_normal((n_queries, n_outputs)) if form.skip else None,
            "intercept": rng.standard_normal(n_outputs) if form.intercept else None,
        }

    def layer(self, n_heads: int = 3) -> LinearAttention:
        """A layer of random heads."""
        sizes = {"n_dims": self.n_dims, "n_context_dims": self.n_context_dims}
        return LinearAttention(form=self.form, **sizes, **self.heads(n_heads))

    @cached_property
    def expected(self) -> tuple[NDArray, NDArray]:
        """S (m, rows) and u (r, rows) of all predicted positions, by the reference."""
        rows = [
            row
            for X, Z in zip(self.sequences, self.contexts, strict=True)
            for row in reference.summaries(X, self.plain, Z)
        ]
        return tuple(np.array(each, dtype=float).T for each in zip(*rows, strict=True))


def named(given: object) -> str:
    """A name that is the same in every process: functions are shown without their address."""
    return re.sub(r" at 0x\w+", "", str(given))[:60]


def square(tokens: NDArray) -> NDArray:
    """A function of the user's own: coordinates and their squares."""
    return np.concatenate([tokens, tokens**2], axis=1)


def matrix(n_dims: int, n_columns: int = 2) -> NDArray:
    """Some matrix (n_dims, n_columns)."""
    return np.random.default_rng(n_dims + n_columns).standard_normal((n_dims, n_columns))


def _plain(**fields_: Any) -> Callable[[int], Form]:
    return lambda _: Form(**fields_)


#: Every choice by itself, for tokens of d coordinates; where the last entry is a number, tokens
#: attend to a context of that many coordinates.
CHOICES: dict[str, tuple[Callable[[int], Form], int | None]] = {
    **{mode: (_plain(mode=mode), None) for mode in MODES},
    **{f"bias-{mode}": (_plain(mode=mode, bias=True), None) for mode in MODES},
    **{f"others-{mode}": (_plain(mode=mode, include_query=False), None) for mode in MODES},
    **{f"mean-{mode}": (_plain(mode=mode, mean=True), None) for mode in MODES},
    **{f"skip-{mode}": (_plain(mode=mode, skip=True), None) for mode in MODES},
    **{f"intercept-{mode}": (_plain(mode=mode, intercept=True), None) for mode in MODES},
    "skip-intercept": (_plain(mode="causal", skip=True, intercept=True), None),
    "skip-bias": (_plain(skip=True, bias=True), None),
    "intercept-bias": (_plain(intercept=True, bias=True), None),
    "others-mean": (_plain(include_query=False, mean=True, mode="full"), None),
    "window-1": (_plain(mode="causal", window=1), None),
    "window-3": (_plain(mode="causal", window=3), None),
    "window-last": (_plain(window=3), None),
    "window-others": (_plain(mode="causal", window=3, include_query=False, mean=True), None),
    "window-long": (_plain(mode="causal", window=10**30, mean=True), None),
    "decay": (_plain(mode="causal", decay=0.7), None),
    "decay-last": (_plain(decay=0.7), None),
    "decay-1": (_plain(mode="causal", decay=1), None),
    "decay-others": (_plain(mode="causal", decay=0.7, include_query=False), None),
    "decay-window": (_plain(mode="causal", decay=0.7, window=3, include_query=False), None),
    "decays": (_plain(mode="causal", decay=[0.5, 1.0, 0.9], mean=True), None),
    "decays-last": (_plain(decay=[0.5, 0.9]), None),
    "lags-1": (_plain(mode="causal", lags=1), None),
    "lags-3": (_plain(mode="causal", lags=3), None),
    "lags-last": (_plain(lags=3, mean=True), None),
    "lags-others": (_plain(mode="causal", lags=2, include_query=False), None),
    "lags-1-others": (_plain(mode="causal", lags=1, include_query=False), None),
    "lags-window": (_plain(mode="causal", lags=2, window=4), None),
    "lags-no-rest": (_plain(mode="causal", lags=5, window=2), None),
    "coordinates": (lambda d: Form(query=range(d), key=[0], value=[-1]), None),
    "overlap": (lambda d: Form(mode="causal", key=slice(0, 2), value=list({d - 1, d // 2})), None),
    "disjoint": (lambda d: Form(key=slice(0, -1) if d > 1 else None, value=-1), None),
    "backwards": (lambda _: Form(mode="full", query=slice(None, None, -1), bias=True), None),
    "matrix": (lambda d: Form(mode="causal", query=matrix(d), key=matrix(d, 3)), None),
    "one-matrix": (lambda d: Form(key=matrix(d, 3), value=matrix(d, 3), bias=True), None),
    "own-function": (lambda _: Form(mode="causal", key=square, value=square), None),
    "polynomial": (_plain(query=maps.polynomial(2), value=[0]), None),
    "elu1": (_plain(mode="causal", query=maps.elu1(), key=maps.elu1()), None),
    "random-fourier": (_plain(key=maps.random_fourier(4, 1.0, 0)), None),
    "hedgehog": (_plain(mode="full", query=maps.hedgehog(), key=maps.hedgehog()), None),
    "normalised": (_plain(value=maps.normalised(), bias=True), None),
    **{f"context-{mode}": (_plain(mode=mode), 2) for mode in MODES},
    **{f"context-bias-{mode}": (_plain(mode=mode, bias=True, mean=True), 1) for mode in MODES},
    "context-maps": (lambda d: Form(mode="full", key=matrix(2), value=[1], query=matrix(d)), 2),
    "context-decay": (_plain(mode="causal", decay=[0.5, 0.9], include_query=False), 2),
    "context-window": (_plain(mode="causal", window=2, intercept=True, skip=True), 2),
}


def random_form(rng: np.random.Generator, n_dims: int, n_context_dims: int | None) -> Form:
    """A form of random choices, drawn again until they do not contradict each other."""

    def some_map(width: int) -> Any:
        size = int(rng.integers(1, width + 1))
        options: list[Any] = [
            None,
            None,
            rng.choice(width, size, replace=False).tolist(),
            rng.choice(width, size, replace=False).tolist(),
            matrix(width, int(rng.integers(1, 4))),
            maps.polynomial(2),
            maps.elu1(),
            maps.hedgehog(),
            maps.normalised(),
            maps.random_fourier(3, 0.8, int(rng.integers(9))),
        ]
        return options[int(rng.integers(len(options)))]

    attended_dims = n_dims if n_context_dims is None else n_context_dims
    for _ in range(1000):
        chosen = {
            "mode": str(rng.choice(MODES)),
            "include_query": rng.random() < 0.6,
            "mean": rng.random() < 0.4,
            "window": [None, None, 2, 4][rng.integers(4)],
            "decay": [None, None, 0.8, [0.6, 0.95]][rng.integers(4)],
            "lags": [None, None, None, 2][rng.integers(4)],
            "query": some_map(n_dims),
            "key": some_map(attended_dims),
            "value": some_map(attended_dims),
            "skip": rng.random() < 0.4,
            "intercept": rng.random() < 0.4,
            "bias": rng.random() < 0.4,
        }
        try:
            form = Form(**chosen)
            Layout.of(form, n_dims, n_context_dims)
        except InvalidInput:
            continue
        return form
    raise AssertionError("no consistent form was drawn")


def _cases() -> list[Case]:
    found = []
    for kind, (_, n_dims) in KINDS.items():
        for name, (build, n_context_dims) in CHOICES.items():
            found.append(Case(name, kind, build(n_dims), n_dims, n_context_dims))
        for number in range(N_RANDOM):
            rng = np.random.default_rng([number, n_dims])
            n_context_dims = 2 if number % 4 == 0 else None
            form = random_form(rng, n_dims, n_context_dims)
            found.append(Case(f"random-{number}", kind, form, n_dims, n_context_dims))
    return found


CASES = _cases()
