"""Attention as transformers have it, from black-box access: what is found, and how exactly.

Layers of 8 heads of width 16 on 128 coordinates are hidden behind an oracle that adds its input,
and normalises tokens before attention or turns queries and keys.  Nothing is told but
whether there are biases.  Errors are relative, of what can be seen of attn (with positions at
offsets 0 to 100) and value.

    python benchmarks/queries_real_layers.py --cases causal rms+rotary+grouped
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from common import peak_memory, verdict
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import polyattn as pa

N_DIMS, N_HEADS, WIDTH = 128, 8, 16
LARGEST_ERROR, OFFSETS = 1e-6, (0, 1, 10, 100)


@dataclass(frozen=True)
class Case:
    """A layer: heads in ``groups`` share keys and values."""

    name: str
    mode: str = "causal"
    normalisation: str | None = None
    bias: bool = False
    rotary: bool = False
    groups: int = 1


CASES = [
    Case("full", mode="full"),
    Case("causal"),
    Case("causal+biases", bias=True),
    Case("grouped", groups=4),
    Case("layer+biases", normalisation="layer_norm", bias=True),
    Case("rms", normalisation="rms_norm"),
    Case("rotary", rotary=True),
    Case("rotary+grouped", rotary=True, groups=4),
    Case("rms+rotary+grouped", normalisation="rms_norm", rotary=True, groups=4),
    Case("rms+rotary+biases", normalisation="rms_norm", rotary=True, bias=True),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", choices=[case.name for case in CASES])
    parser.add_argument("--seeds", type=int, default=1, help="how many layers of each case")
    options = parser.parse_args()
    print(
        "case                outcome    residual  normalisation  mode    attn     value  "
        "queries  s  MB"
    )
    for case in CASES:
        for seed in range(options.seeds) if not options.cases or case.name in options.cases else ():
            print(f"{peak_memory(partial(prepare, case, seed)):6.0f}", flush=True)


def prepare(case: Case, seed: int) -> Callable[[], None]:
    """Hide a layer, and return the work that recovers it and prints its row."""
    layer = planted(case, seed)

    def oracle(X: NDArray) -> NDArray:
        return X + layer(normalised(X, case.normalisation))

    def work() -> None:
        start = time.perf_counter()
        found = pa.learn_from_queries(oracle, N_DIMS, bias=case.bias, random_state=seed)
        seconds = time.perf_counter() - start
        of_attn, of_value = errors(seen(layer, case.normalisation), found.layer)
        print(
            f"{case.name:19s} {found.outcome.name:10s} {found.residual!s:8s}  "
            f"{found.normalisation!s:13s}  {found.mode:6s}  {of_attn:.1e}  {of_value:.1e}  "
            f"{found.n_queries:7,d}  {seconds:.1f}",
            end="",
            flush=True,
        )
        around = (found.residual, found.normalisation, found.mode)
        right = found.recovered and around == (True, case.normalisation, case.mode)
        if not right or max(of_attn, of_value) > LARGEST_ERROR:
            verdict(f"{case.name}: recovered to {LARGEST_ERROR}, with what lies around it", False)

    return work


def planted(case: Case, seed: int) -> pa.SoftmaxAttention:
    """Random heads whose logits are about one for tokens of entries about one."""
    rng = np.random.default_rng([seed, len(case.name)])
    rows = N_DIMS + case.bias
    query = rng.standard_normal((N_HEADS, rows, WIDTH)) / (N_DIMS * WIDTH) ** 0.5
    shared = rng.standard_normal((2, N_HEADS // case.groups, rows, WIDTH)) / N_DIMS**0.5
    key, inner = np.repeat(shared, case.groups, axis=1)
    value = inner @ rng.standard_normal((N_HEADS, WIDTH, N_DIMS)) / WIDTH**0.5
    if case.rotary:
        return pa.SoftmaxAttention((query, key), value, case.mode, case.bias, rotary=10000.0)
    return pa.SoftmaxAttention(query @ key.transpose(0, 2, 1), value, case.mode, case.bias)


def normalised(X: NDArray, kind: str | None) -> NDArray:
    """Tokens as they reach the layer."""
    if kind is None:
        return X
    centred = X - X.mean(axis=-1, keepdims=True) if kind == "layer_norm" else X
    return centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def seen(layer: pa.SoftmaxAttention, kind: str | None) -> list[tuple[NDArray, NDArray]]:
    """attn at some offsets and value of each head, as far as tokens show them."""
    onto = np.eye(N_DIMS + layer.bias)
    onto[:N_DIMS, :N_DIMS] -= (kind == "layer_norm") / N_DIMS
    offsets = OFFSETS if layer.frequencies is not None else (0,)
    attn = np.stack([onto @ layer.attn_at(o) @ onto for o in offsets], axis=1)
    if layer.bias and layer.frequencies is None:
        attn = attn[..., :N_DIMS]
    if layer.bias and layer.frequencies is not None:
        # A shift of all logits of a query is invisible; how offsets differ in it is not.
        attn[..., -1] -= attn[:, :1, :, -1]
    return list(zip(attn, (onto @ layer.value)[:, :N_DIMS], strict=True))


def errors(
    true: list[tuple[NDArray, NDArray]], found: pa.SoftmaxAttention | None
) -> tuple[float, float]:
    """The largest relative errors over matched heads, of attn and of value."""
    if found is None or found.n_heads != len(true):
        return np.inf, np.inf
    other = seen(found, None)
    apart = [
        np.array(
            [[np.linalg.norm(a[i] - b[i]) / np.linalg.norm(a[i]) for b in other] for a in true]
        )
        for i in (0, 1)
    ]
    matched = linear_sum_assignment(apart[0] + apart[1])
    return float(apart[0][matched].max()), float(apart[1][matched].max())


def _apart(true: NDArray, found: NDArray) -> float:
    return float(np.linalg.norm(true - found) / np.linalg.norm(true))


if __name__ == "__main__":
    main()
