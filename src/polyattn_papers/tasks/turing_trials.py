"""Is a learned Turing machine one?  Fresh random machines, and machines that people know.

A run is right if tape, state, head and every step are those of the plain simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyattn.errors import PolyattnError
from polyattn.programs import Learned, TuringMachine, TuringRun
from polyattn.programs.machines import (
    binary_increment,
    busy_beaver,
    palindrome,
    unary_addition,
)
from polyattn_papers.reproduction import Row


@dataclass(frozen=True)
class TuringTrial:
    """A machine with the tape, place and steps that it is started with."""

    machine: TuringMachine
    tape: list[int]
    position: int
    state: int = 0
    max_steps: int = 3000

    @property
    def sizes(self) -> dict[str, int]:
        """The least sizes of a program that can run it."""
        machine = self.machine
        return {
            "n_states": machine.n_states,
            "n_letters": machine.n_letters,
            "n_cells": len(self.tape),
        }


def beaver(n_states: int) -> Callable[[int], TuringTrial]:
    """A busy beaver in the middle of a blank tape of so many cells."""
    return lambda n_cells: TuringTrial(busy_beaver(n_states), [0] * n_cells, n_cells // 2)


def increment(n_cells: int) -> TuringTrial:
    """One more than a number whose last digits are ones: they are all carried."""
    half = n_cells // 2
    return TuringTrial(
        binary_increment(), [0, 1] + [0] * (n_cells - half - 2) + [1] * half, n_cells - 1
    )


def addition(n_cells: int) -> TuringTrial:
    """Two unequal blocks of ones, with blanks behind them."""
    first, second = n_cells // 2 - 2, n_cells // 3
    blocks = [1] * first + [0] + [1] * second
    return TuringTrial(unary_addition(), blocks + [0] * (n_cells - len(blocks)), 0)


def word(n_cells: int) -> TuringTrial:
    """A palindrome as long as the tape allows."""
    half = [1 + (place % 3 == 0) for place in range((n_cells - 2) // 2)]
    return TuringTrial(palindrome(), [0, *half, *half[::-1], 0], 1)


#: The known machines, and the cells that a program of any size is given for each.
TRIALS: dict[str, tuple[Callable[[int], TuringTrial], int]] = {
    "beaver_2": (beaver(2), 16),
    "beaver_3": (beaver(3), 16),
    "beaver_4": (beaver(4), 32),
    "beaver_5": (beaver(5), 128),
    "increment": (increment, 32),
    "addition": (addition, 32),
    "palindrome": (word, 32),
}

N_FRESH = 100

#: The sizes of fresh machines, larger than those of the traces, and how many of each.
LARGER = (
    ({"n_states": 4, "n_letters": 3, "n_cells": 16}, N_FRESH),
    ({"n_states": 5, "n_letters": 4, "n_cells": 64}, 20),
)


def judge(learned: Learned, by_rules: bool, seed: int) -> Row:
    """All trials: programs of rules at larger sizes, others at their own as far as machines fit."""
    encoding: Any = learned.schema.encoding
    own: dict[str, int] = encoding.sizes
    row: Row = {"fresh_machines": 0, "fresh_right": 0}
    for number, (sizes, count) in enumerate(LARGER if by_rules else ((own, N_FRESH),)):
        program = learned.resize(**sizes) if by_rules else learned
        rng = np.random.default_rng([seed, number, 1])
        row["fresh_machines"] += count
        row["fresh_right"] += sum(_fresh_is_right(program, rng) for _ in range(count))
    runs: dict[str, TuringRun | None] = {}
    for name, (start, n_cells) in TRIALS.items():
        trial = start(n_cells if by_rules else own["n_cells"])
        fits = by_rules or all(trial.sizes[size] <= own[size] for size in own)
        program = learned.resize(**trial.sizes) if by_rules else learned
        runs[name] = _right_run(program, trial) if fits else None
        row[name] = runs[name] is not None if fits else None
    four = runs["beaver_4"]
    return row | {
        "beaver_4_steps": four.steps if four else None,
        "beaver_4_ones": sum(four.tape) if four else None,
        "exact": row["fresh_right"] == row["fresh_machines"]
        and all(row[name] for name in TRIALS if row[name] is not None),
    }


def _fresh_is_right(program: Learned, rng: np.random.Generator) -> bool:
    encoding: Any = program.schema.encoding
    (machine, tape), options = encoding.sample(rng)
    return _right_run(program, TuringTrial(machine, tape, **options)) is not None


def _right_run(program: Learned, trial: TuringTrial) -> TuringRun | None:
    """The run of the learned program if it is the right one."""
    machine = trial.machine
    options = {name: getattr(trial, name) for name in ("position", "state", "max_steps")}
    try:
        run: TuringRun = program.run(machine, trial.tape, **options)
    except PolyattnError:
        # Tokens that no machine writes: the program is wrong, and that is an answer.
        return None
    return run if run == machine.run(trial.tape, **options) else None
