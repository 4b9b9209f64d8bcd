"""Associative memory: the smallest eigenvalue of the data against the distance of what is learnt.

[yau2024: figure 2]: mixtures of sequences with orthogonal and with Gaussian keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyattn.certify import certify
from polyattn.data import Planted, associative_memory
from polyattn.model import LinearAttention, coefficient_distance
from polyattn_papers.reproduction import Experiment, Row, Settings
from polyattn_papers.yau2024.memory.closed_form import closed_form_rows
from polyattn_papers.yau2024.memory.drawing import draw
from polyattn_papers.yau2024.memory.judging import findings, gates

N_KEYS = 4
N_SEQUENCES = 1 << 14


def cells(profile: str) -> Sequence[Settings]:
    """A cell is a data set with one way to learn from it, repeated over draws or starts."""
    full = profile == "full"
    shares = (0.95, 0.96, 0.97, 0.98, 0.99, 1.0) if full else (0.95, 0.97, 0.99, 1.0)
    trained_shares = shares if full else (0.95, 0.99, 1.0)
    families = [(heads, False) for heads in ((1, 2, 4, 8) if full else (1, 4))]
    families += [(8, True)] if full else []
    n_starts, n_steps = (16, 4000) if full else (12, 1800)
    return [
        *(
            _cell("closed form", share, repeats=8 if full else 4, seed=seed)
            for share in shares
            for seed in range(3 if full else 1)
        ),
        *(
            _cell("Adam", share, n_starts, heads, small, n_steps)
            for share in trained_shares
            for heads, small in families
        ),
    ]


def run(settings: Settings) -> list[Row]:
    """Learn, and compare with the planted layer: one row for each draw or start."""
    task = associative_memory(
        N_SEQUENCES, N_KEYS, unitary=settings["unitary"], random_state=settings["seed"]
    )
    certificate = certify(task.X)
    if settings["learner"] == "closed form":
        rows = closed_form_rows(task, certificate, settings["repeats"], settings["seed"])
    else:
        rows = _trained_rows(task, settings)
    known = {
        "verdict": certificate.verdict,
        "lambda_min": certificate.lambda_min,
        "rank": certificate.rank,
        "n_features": certificate.n_features,
    }
    return [known | row for row in rows]


def _cell(
    learner: str,
    unitary: float,
    repeats: int,
    n_heads: int | None = None,
    small_start: bool = False,
    n_steps: int | None = None,
    seed: int = 0,
) -> Settings:
    return {
        "learner": learner, "unitary": unitary, "n_heads": n_heads,
        "small_start": small_start, "n_steps": n_steps, "repeats": repeats, "seed": seed,
    }  # fmt: skip


def _trained_rows(task: Planted[LinearAttention], settings: Settings) -> list[Row]:
    # torch is an extra, and the closed form does without.
    from polyattn_papers.yau2024.memory_sgd import Training, train

    X, Y = np.asarray(task.X), np.asarray(task.Y)
    training = Training(
        settings["n_heads"], settings["repeats"], settings["n_steps"], settings["small_start"],
        settings["seed"],
    )  # fmt: skip
    return [
        {
            "target": "exact", "repeat": repeat,
            "risk": float(np.mean(np.sum((layer(X) - Y) ** 2, axis=1))),
            "distance": coefficient_distance(layer, task.layer),
            "expected_distance": None, "expected_spread": None,
        }
        for repeat, layer in enumerate(train(X, Y, training))
    ]  # fmt: skip


EXPERIMENT = Experiment(
    name="yau2024-fig2",
    title="Associative memory: the smallest eigenvalue says how far learners end from the truth",
    claim=(
        "Sequences store four keys with four values and ask for one. In 95 to 100 % of them keys "
        "and values are orthogonal (unitary) matrices, in the rest Gaussian. The more are "
        "Gaussian, the larger is the smallest eigenvalue of the second moment of the features "
        "(0.06 at 95 %), and the nearer to the true layer, in coefficients, end (a) the closed "
        "form and (b) layers of 1, 2, 4, 8 heads trained by stochastic gradients. With orthogonal "
        "keys alone it is zero, and nothing singles out the true layer."
    ),
    reference="Yau et al. (arXiv 2410.10101), section 4.2, figure 2, and Lemma E.1.",
    cells=cells,
    run=run,
    findings=findings,
    gates=gates,
    draw=draw,
    needs_torch=True,
    revision=3,
)
