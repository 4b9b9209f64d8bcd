"""The universal automaton: how many tokens it takes to learn it [yau2024: figure 4]."""

from __future__ import annotations

import time
from collections.abc import Sequence

from polyattn_papers.reproduction import Experiment, Row, Settings
from polyattn_papers.yau2024.automaton_findings import BASE, draw, findings, gates
from polyattn_papers.yau2024.automaton_learners import Sizes, tied, transformer, untied

LEARNERS = {"untied": untied, "tied": tied, "transformer": transformer}

LARGEST = {"smoke": 4, "full": 8}

# Seeds of a size; where a single search takes minutes, one must do.
N_SEEDS, LARGE = 3, 6

# What a learner that has nothing to say of it leaves open.
COLUMNS = ("traces", "rows", "tokens", "accuracy", "rows_for_histories", "wrong_claims")


def cells(profile: str) -> list[Settings]:
    """Every learner at every size; the longest cells first, so that none is waited for."""
    sizes = sorted(swept(LARGEST[profile]), key=_work, reverse=True)
    if profile == "smoke":
        return [_cell(learner, one, 0) for learner in ("untied", "tied") for one in sizes]
    seeds = {one: 1 if max(one[:2]) >= LARGE else N_SEEDS for one in sizes}
    return [
        *(_cell("untied", one, seed) for one in sizes for seed in range(seeds[one])),
        *(_cell("transformer", one, 0) for one in sizes),
        *(_cell("tied", one, seed) for one in sizes for seed in range(N_SEEDS)),
    ]


def run(settings: Settings) -> list[Row]:
    """How much one learner needs at one size."""
    sizes = settings["n_states"], settings["n_letters"], settings["length"]
    start = time.perf_counter()
    found = LEARNERS[settings["learner"]](sizes, settings["seed"])
    seconds = round(time.perf_counter() - start, 1)
    return [{name: found.get(name) for name in COLUMNS} | {"seconds": seconds}]


def swept(largest: int) -> Sequence[Sizes]:
    """Sizes (states, letters, length) with one of them from 2 to ``largest``."""
    values = range(2, largest + 1)
    found = {(n, BASE, BASE) for n in values} | {(BASE, n, BASE) for n in values}
    return sorted(found | {(BASE, BASE, n) for n in values})


def _cell(learner: str, sizes: Sizes, seed: int) -> Settings:
    names = ("n_states", "n_letters", "length")
    return {"learner": learner} | dict(zip(names, sizes, strict=True)) | {"seed": seed}


def _work(sizes: Sizes) -> int:
    """What the time of untied learning grows with."""
    n_states, n_letters, length = sizes
    return n_states * n_states * n_letters * n_letters * length


EXPERIMENT = Experiment(
    name="yau2024-fig4",
    title="Learning to run any automaton",
    claim=(
        "A layer of linear attention can run any finite automaton that its prompt describes, and "
        "can be learned from runs in polynomial time. The paper trains a Transformer of 4 layers, "
        "2048 wide, on such runs; for 2 to 8 states, letters and lengths of the word it needs 10⁴ "
        "to 10⁶ tokens until 99 % of next tokens are right."
    ),
    reference="Yau et al. (arXiv 2410.10101), figure 4, Appendix G.4, Lemma C.5.",
    cells=cells,
    run=run,
    findings=findings,
    gates=gates,
    draw=draw,
    needs_torch=True,
)
