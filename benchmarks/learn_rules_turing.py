"""A universal Turing machine learned from few traces: how often it is right, and whether it knows.

From 10, 20 and 40 traces of random machines of 3 states, 3 letters and 9 cells a program is
learned and read back.  It is right if it runs 100 fresh machines of 4 states, 3 letters and 16
cells exactly, the busy beaver of 4 states to its halt, and 3000 steps of that of 5 states on 128
cells.  Claims: it never says "learned" and is wrong; from 40 traces it is always learned and
right, in at most 40 terms.  Ends with an error if a claim is missed.

``--seeds N`` for each number of traces (default 5), from ``--first`` on (README: 50 from 100).
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter

import numpy as np
from common import require
from threadpoolctl import threadpool_limits

from polyattn import programs
from polyattn.errors import PolyattnError
from polyattn.programs.learning import Learned

TRACES = (10, 20, 40)
MOST_TERMS = 40


def is_right(learned: Learned, seed: int) -> bool:
    """Whether the program runs machines that it never saw, of sizes that it never saw."""
    rng = np.random.default_rng([seed, 1])
    larger = learned.resize(n_states=4, n_letters=3, n_cells=16)
    encoding = larger.schema.encoding
    runs = [(larger, *encoding.sample(rng)) for _ in range(100)]
    four, five = (programs.machines.busy_beaver(n) for n in (4, 5))
    runs += [
        (learned.resize(n_states=4, n_letters=2, n_cells=32), (four, [0] * 32), {}),
        (learned.resize(n_states=5, n_letters=2, n_cells=128), (five, [0] * 128),
         {"max_steps": 3000}),
    ]  # fmt: skip
    return all(_agrees(program, *given, **options) for program, given, options in runs)


def _agrees(
    program: Learned, machine: programs.TuringMachine, tape: list[int], **options: int
) -> bool:
    try:
        return bool(program.run(machine, tape, **options) == machine.run(tape, **options))
    except PolyattnError:  # tokens that no machine writes
        return False


def main() -> None:
    options = ArgumentParser()
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--traces", type=int, nargs="+", default=TRACES)
    given = options.parse_args()
    program = programs.universal_turing_machine(3, 3, 9)
    lost, most, silent = 0, 0, 0
    print("traces  learned, right  learned, wrong  not claimed (right)  outcomes")
    for n_traces in given.traces:
        counts: Counter[str] = Counter()
        names: Counter[str] = Counter()
        for seed in range(given.first, given.first + given.seeds):
            learned = programs.learn(
                program.schema, programs.traces(program, n_traces, random_state=seed)
            )
            right = is_right(learned, seed)
            counts[f"{learned.succeeded} {right}"] += 1
            names[learned.outcome.name] += 1
            most = max(most, len(learned.terms)) if learned.succeeded else most
        silent += counts["True False"]
        lost += given.seeds - counts["True True"] if n_traces == TRACES[-1] else 0
        print(
            f"{n_traces:6d}  {counts['True True']:14d}  {counts['True False']:14d}"
            f"  {counts['False True'] + counts['False False']:11d} ({counts['False True']:d})"
            f"{'':8s}{dict(names)}",
            flush=True,
        )
    print(f"at most {most} terms")
    require("what it calls learned is right", silent == 0)
    require(f"{TRACES[-1]} traces teach it, in few terms", lost == 0 and most <= MOST_TERMS)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
