"""The universal Turing machine as a layer, Q = 4, A = 3, P = 32, one thread.

Claims: at least 20,000 tokens per second; at 1000 tokens at least 20x faster than layers that
start anew at every token; 200 machines at once faster than one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import common
import numpy as np
from common import best_times, require, verdict
from numpy.typing import NDArray

import polyattn as pa
from polyattn.programs import Compiled, TuringMachine, TuringRun

SIZES = {"n_states": 4, "n_letters": 3, "n_cells": 32}
N_STEPS, N_MACHINES, BATCH_STEPS = 500, 200, 50

# One history leaves nothing for a second thread to do.
common.THREADS = 1


def random_machine(seed: int) -> TuringMachine:
    """Rules that never halt."""
    rng = np.random.default_rng(seed)
    states, letters = range(SIZES["n_states"]), range(SIZES["n_letters"])
    rules = {
        (q, x): (int(rng.choice(states)), int(rng.choice(letters)), int(rng.choice([-1, 1])))
        for q in states
        for x in letters
    }
    return TuringMachine(rules, len(states), len(letters))


def anew(
    compiled: Compiled, prompt: NDArray, n_tokens: int, predict: Callable
) -> Iterator[NDArray]:
    """Token after token, each predicted from all before it."""
    X = np.zeros((len(prompt) + n_tokens, compiled.n_dims))
    X[: len(prompt)] = prompt
    for end in range(len(prompt), len(X)):
        X[end] = compiled.schema.round(predict(X[:end]))
        yield X[end]


def by_gram(compiled: Compiled) -> Callable[[NDArray], NDArray]:
    """sum_h x A_h G V_h with the Gram matrix of all tokens so far."""
    attn = np.concatenate([A.T for A in compiled.layer.attn])  # (H d, d)
    value = np.concatenate(list(compiled.layer.value))  # (H d, e)
    shape = (compiled.n_heads, compiled.n_dims)

    def predict(X: NDArray) -> NDArray:
        G = X.T @ X
        return ((attn @ X[-1]).reshape(shape) @ G).ravel() @ value

    return predict


def same(runs: list[TuringRun], machines: list[TuringMachine], n_steps: int) -> bool:
    """Whether all runs are those of the machines' own rules."""
    tape = [0] * SIZES["n_cells"]
    return runs == [machine.run(tape, max_steps=n_steps) for machine in machines]


def one_history(compiled: Compiled, machine: TuringMachine) -> None:
    n_tokens = 1 + 2 * N_STEPS
    task = compiled.schema.encoding.task(machine, max_steps=N_STEPS)  # type: ignore[union-attr]
    prompt = compiled.schema.encode(task.prompt)
    sides = {
        "incremental": lambda: compiled.run(machine, max_steps=N_STEPS),
        "Gram anew": lambda: [*anew(compiled, prompt, n_tokens, by_gram(compiled))],
        "layer(X)": lambda: [*anew(compiled, prompt, n_tokens, compiled.layer)],
    }
    seconds = best_times(sides, 3)
    print(f"one machine, {N_STEPS} steps, {len(prompt)} tokens of prompt and {n_tokens} after it")
    for name, value in seconds.items():
        print(f"  {name:12s} {value:8.4f} s  {n_tokens / value:9,.0f} tokens/s")
    tokens = compiled.trace(machine, max_steps=N_STEPS).completion
    for name in ("Gram anew", "layer(X)"):
        require(f"{name}: all {n_tokens} tokens", np.array_equal(sides[name](), tokens))
    require("the machine's own rules", same([sides["incremental"]()], [machine], N_STEPS))
    rate = n_tokens / seconds["incremental"]
    verdict(f"{rate:,.0f} tokens/s (claim: 20,000)", rate >= 20_000)
    for name in ("Gram anew", "layer(X)"):
        ratio = seconds[name] / seconds["incremental"]
        verdict(f"{ratio:.0f}x faster than {name} at every token (claim: 20x)", ratio >= 20)


def many_histories(compiled: Compiled, machines: list[TuringMachine]) -> None:
    given = [(machine,) for machine in machines]
    sides = {
        "batch": lambda: compiled.run_batch(given, max_steps=BATCH_STEPS),
        "one by one": lambda: [compiled.run(*each, max_steps=BATCH_STEPS) for each in given],
    }
    seconds = best_times(sides, 3)
    n_tokens = len(machines) * (1 + 2 * BATCH_STEPS)
    print(f"{len(machines)} machines, {BATCH_STEPS} steps each, {n_tokens} tokens")
    for name, value in seconds.items():
        print(f"  {name:12s} {value:8.4f} s  {n_tokens / value:9,.0f} tokens/s")
    for name, side in sides.items():
        require(f"{name}: the machines' own rules", same(side(), machines, BATCH_STEPS))
    ratio = seconds["one by one"] / seconds["batch"]
    verdict(f"{ratio:.2f}x faster in a batch (claim: 1x)", ratio >= 1)


def main() -> None:
    start = time.perf_counter()
    compiled = pa.programs.compile(pa.programs.universal_turing_machine(**SIZES))
    seconds = time.perf_counter() - start
    print(f"universal Turing machine: {compiled!r}, compiled in {seconds:.3f} s, one thread")
    machines = [random_machine(seed) for seed in range(N_MACHINES)]
    one_history(compiled, machines[0])
    many_histories(compiled, machines)


if __name__ == "__main__":
    main()
