"""What is run: bounds, their argument on all sequences, the reduction, and attacks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import comb

import numpy as np

from polyattn.softmax import solve_noisy_parity, statistical_query_bound
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.tasks.parity import n_parities
from polyattn_papers.tasks.parity_attacks import (
    Attack,
    NoisyParity,
    by_all_sets,
    by_elimination,
    by_halves,
    by_transform,
    layer_learner,
    samples_needed,
)
from polyattn_papers.tasks.parity_queries import (
    CommonOracle,
    ParityFamily,
    informative_queries,
    informative_sign_queries,
    learn_by_correlations,
)

#: The parts of the experiment.
BOUND, ARGUMENT, REDUCTION, ATTACK = "bound", "argument", "reduction", "attack"

N_TOKENS, TOLERANCE, NOISE = 4, 0.1, 0.1

# Sharpness at which the outputs of enumerated layers are signs in double precision.
SHARP = 40.0

# All sets are tried up to so many of them; the transform up to so many bits.
MOST_SETS, MOST_BITS = 3_000_000, 19

# More equations than unknowns, so that elimination ends with probability 1 - 2^-20.
SPARE_SAMPLES = 20

# Seeds of this experiment alone: nothing was tuned on them.
FIRST_SEED = 7000

# All that a row may hold; each part fills its own.
EMPTY: Row = dict.fromkeys((
    "correlation", "most_excluded", "n_queries", "n_excluded", "n_asked", "n_learned",
    "n_learned_most", "n_samples", "work", "seconds", "found", "disagreement",
))  # fmt: skip


def cells(profile: str) -> list[Settings]:
    """The four parts, in small or in full."""
    if profile == "smoke":
        bounds = [*product((16, 64, 256), (1, 3, 5), (None,)), (64, 5, 1.0), (64, 5, 4.0)]
        families = [(5, 1, 2, 0.24), (6, 3, 2, 0.49)]
        secrets = [*product((12,), (3, 5), range(1))]
        attacks = [*product((16, 24), (3, 5, 7), (0.0, NOISE), range(2))]
    else:
        bounds = [
            *product((8, 16, 32, 64, 128, 256, 512), (1, 3, 5, 7), (None,)),
            *product((64,), (3, 5), (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)),
        ]
        families = [*product(
            (5, 6, 7), (1, 3), (2,), (0.05, 0.1, 0.15, 0.2, 0.24, 0.3, 0.4, 0.49)
        ), *product((5,), (1, 3), (3,), (0.05, 0.1, 0.2, 0.36, 0.5, 0.74))]  # fmt: skip
        secrets = [*product((16, 24), (1, 3, 5, 7), range(3))]
        attacks = [
            *product((12, 16, 20), (3, 5), (0.0, NOISE), range(10)),
            *product((32,), (3, 5, 7, 9, 11), (0.0, NOISE), range(10)),
            *product((64,), (3, 5, 7), (0.0, NOISE), range(10)),
            *product((32,), (3, 5, 7), (0.25,), range(10)),
        ]
    return [
        *(_cell(BOUND, d, s, N_TOKENS, beta, tolerance=TOLERANCE) for d, s, beta in bounds),
        *(_cell(ARGUMENT, d, s, k, tolerance=tau) for d, s, k, tau in families),
        *(_cell(REDUCTION, d, s, N_TOKENS, noise=NOISE, number=i) for d, s, i in secrets),
        *(_cell(ATTACK, d, s, noise=noise, number=i) for d, s, noise, i in attacks),
    ]


def run(settings: Settings) -> list[Row]:
    """The rows of one part."""
    rows = {BOUND: _bounds, ARGUMENT: _argument, REDUCTION: _reduction, ATTACK: _attacks}
    members = n_parities(settings["n_dims"], settings["n_heads"])
    made = rows[settings["part"]](settings)
    return [{"method": method, "n_members": members} | EMPTY | row for method, row in made]


def _bounds(settings: Settings) -> Iterator[tuple[str, Row]]:
    """Computed for every kind of query; for soft layers only correlations have a bound."""
    soft = settings["beta"] is not None
    for queries in ("correlational",) if soft else ("correlational", "row_sign", "all_signs"):
        bound = statistical_query_bound(
            settings["n_dims"], settings["n_heads"], settings["tolerance"],
            n_tokens=settings["n_tokens"], beta=settings["beta"] if soft else np.inf,
            queries=queries,
        )  # fmt: skip
        yield (
            queries,
            {
                "correlation": bound.correlation,
                "most_excluded": bound.most_excluded,
                "n_queries": bound.n_queries,
            },
        )


def _argument(settings: Settings) -> Iterator[tuple[str, Row]]:
    """How much queries exclude that are made to, and learners against the common answers."""
    d, s, k, tau = (settings[name] for name in ("n_dims", "n_heads", "n_tokens", "tolerance"))
    family, rng = ParityFamily.of(d, s, k, SHARP), np.random.default_rng(FIRST_SEED)
    for queries, asked, answers in (
        ("correlational", informative_queries(family, rng), family.correlations),
        ("all_signs", informative_sign_queries(family, rng), family.sign_averages),
    ):
        bound = statistical_query_bound(d, s, tau, n_tokens=k, queries=queries, success=1.0)
        most = max(family.excluded(answers(query), tau) for query in asked)
        allowed = {"most_excluded": bound.most_excluded, "n_queries": bound.n_queries}
        yield queries, allowed | {"n_excluded": most}
        if queries == "correlational":
            for asked_for in sorted({1, len(family.sets) // 2, len(family.sets)}):
                yield "learner", _learner(family, tau, asked_for, bound.most_excluded)


def _learner(family: ParityFamily, tolerance: float, n_queries: int, most_excluded: int) -> Row:
    members = len(family.sets)
    learned = sum(
        learn_by_correlations(CommonOracle(family, member, tolerance), n_queries) == hidden
        for member, hidden in enumerate(family.sets)
    )
    return {
        "most_excluded": most_excluded,
        "n_asked": n_queries,
        "n_learned": learned,
        "n_learned_most": min(members, n_queries * most_excluded + 1),
    }


def _reduction(settings: Settings) -> Iterator[tuple[str, Row]]:
    """A secret of learning parity with noise, by a learner of layers that meets in the middle."""
    n, s, noise, k = settings["n_dims"] - 1, settings["n_heads"], settings["noise"], N_TOKENS
    rng = np.random.default_rng(settings["seed"])
    hidden = _secret(n, s, rng)
    problem = NoisyParity.draw(2 * samples_needed(n, s, noise), n, hidden, noise, rng)
    found = solve_noisy_parity(
        problem.A, problem.b, noise, layer_learner(by_halves, s, noise), n_tokens=k,
        random_state=settings["seed"],
    )  # fmt: skip
    yield (
        "halves",
        {
            "n_samples": found.n_samples,
            "found": found.hidden == hidden,
            "disagreement": found.disagreement,
        },
    )


def _attacks(settings: Settings) -> Iterator[tuple[str, Row]]:
    """Without noise elimination, with noise all others that can end, on the same samples."""
    n, s, noise = settings["n_dims"] - 1, settings["n_heads"], settings["noise"]
    rng = np.random.default_rng(settings["seed"])
    hidden = _secret(n, s, rng)
    if noise == 0.0:
        count, attacks = n + SPARE_SAMPLES, {"elimination": by_elimination}
    else:
        count, attacks = samples_needed(n, s, noise), {"halves": by_halves}
        if comb(n, s) <= MOST_SETS:
            attacks["all_sets"] = by_all_sets
        if n <= MOST_BITS:
            attacks["transform"] = by_transform
    problem = NoisyParity.draw(count, n, hidden, noise, rng)
    for name, attack in attacks.items():
        yield name, _of_attack(attack(problem), hidden, count)


def _of_attack(found: Attack, hidden: tuple[int, ...], n_samples: int) -> Row:
    return {
        "n_samples": n_samples,
        "work": found.work,
        "seconds": found.seconds,
        "found": found.hidden == hidden,
    }


def _secret(n: int, s: int, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(sorted(rng.permutation(n)[:s].tolist()))


def _cell(
    part: str,
    n_dims: int,
    n_heads: int,
    n_tokens: int | None = None,
    beta: float | None = None,
    *,
    tolerance: float | None = None,
    noise: float | None = None,
    number: int = 0,
) -> Settings:
    """``beta`` is None in the limit of sharp layers."""
    return {
        "part": part,
        "n_dims": n_dims,
        "n_heads": n_heads,
        "n_tokens": n_tokens,
        "beta": beta,
        "tolerance": tolerance,
        "noise": noise,
        "seed": FIRST_SEED + number,
    }
