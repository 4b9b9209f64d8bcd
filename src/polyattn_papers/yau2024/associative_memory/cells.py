"""What is run: one data set with one way to learn from it, over draws of noise or starts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.certify import Certificate, certify
from polyattn.certify.outcomes import IDENTIFIABLE, NOT_IDENTIFIABLE
from polyattn.data import Planted, associative_memory
from polyattn.fitting.fit import fit
from polyattn.model import LinearAttention, coefficient_distance
from polyattn.stats import Moments
from polyattn_papers.reproduction.experiment import Row, Settings

N_KEYS = 4
N_SEQUENCES = 1 << 14

# Other numbers of sequences, where it is asked what more of them change.
FEW, MANY = 1 << 12, 1 << 17

# Standard deviation of the noise on targets: without any, the closed form makes no error.
NOISE = 0.1

#: What is fitted: equation 5 without and with noise, and equation 14, which no layer computes.
EXACT, NOISY, PRINTED = "exact", "noisy", "equation 14"

# Shares of orthogonal keys.  Beyond 99.7 % fewer Gaussian sequences are left than directions that
# only they show.
SHARES = (0.95, 0.96, 0.97, 0.98, 0.99)
DENSE = (0.985, 0.9875, 0.9925, 0.994, 0.995, 0.9955, 0.996, 0.9963, 0.9966, 0.997)


def cells(profile: str) -> Sequence[Settings]:
    """A cell is a data set with one way to learn from it, repeated over draws or starts."""
    full = profile == "full"
    trained_shares = (*SHARES, 1.0) if full else (0.95, 0.99, 1.0)
    shares = sorted({*SHARES, *DENSE, 1.0}) if full else (0.95, 0.99, 0.996, 1.0)
    more = (FEW, MANY) if full else (FEW,)
    families = [(heads, False) for heads in ((1, 2, 4, 8) if full else (4,))]
    families += [(8, True)] if full else []
    n_starts, n_steps = (16, 4000) if full else (8, 1500)
    return [
        *(
            _cell("closed form", share, repeats=8 if full else 4, seed=seed)
            for share in shares
            for seed in range(3 if full else 1)
        ),
        *(_cell("closed form", 0.95, repeats=0, n_sequences=count) for count in more),
        *(
            _cell("Adam", share, n_starts, heads, small, n_steps)
            for share in trained_shares
            for heads, small in families
        ),
    ]


def run(settings: Settings) -> list[Row]:
    """Learn, and compare with the planted layer: one row for each draw or start."""
    task = associative_memory(
        settings["n_sequences"], N_KEYS, unitary=settings["unitary"],
        random_state=settings["seed"], own_token=False,
    )  # fmt: skip
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


def closed_form_rows(
    task: Planted[LinearAttention], certificate: Certificate, n_draws: int, seed: int
) -> list[Row]:
    """Fits to exact, noisy (``n_draws`` times) and printed targets, all from the same moments.

    ``task`` has the targets of equation 14, and its layer gives those of equation 5.  Where data
    determine no layer, one row more: a layer that fits the latter as well as the true one.
    """
    Y, printed, truth = task.layer(task.X), np.asarray(task.Y), task.layer.coef
    rng = np.random.default_rng([seed, 1])
    noisy = [Y + NOISE * rng.standard_normal(Y.shape) for _ in range(n_draws)]
    moments = Moments(task.layer.n_dims, Y.shape[1] * (2 + n_draws))
    moments.update(task.X, np.concatenate([Y, printed, *noisy], axis=1))
    found = fit(statistics=moments).coef.reshape(2 + n_draws, *truth.shape)
    second = moments.second_moment
    none: Row = {"expected_distance": None, "expected_spread": None}
    expected = none
    if certificate.verdict == IDENTIFIABLE:
        expected = _expected(second, len(Y), Y.shape[1])
    rows = [_row(EXACT, 0, found[0] - truth, second) | none]
    rows += [
        _row(NOISY, draw, coef - truth, second) | expected for draw, coef in enumerate(found[2:])
    ]
    rows.append(_row(PRINTED, 0, found[1] - truth, second) | none)
    if certificate.verdict == NOT_IDENTIFIABLE:
        other = certificate.witness(task.layer).layer_b
        row = _row("another minimiser", 0, other.coef - truth, second) | none
        # Its outputs show a risk that is lost to rounding in the quadratic form.
        rows.append(row | {"risk": float(np.mean(np.sum((other(task.X) - Y) ** 2, axis=1)))})
    return rows


def _cell(
    learner: str,
    unitary: float,
    repeats: int,
    n_heads: int | None = None,
    small_start: bool = False,
    n_steps: int | None = None,
    seed: int = 0,
    n_sequences: int = N_SEQUENCES,
) -> Settings:
    return {
        "learner": learner, "unitary": unitary, "n_sequences": n_sequences, "n_heads": n_heads,
        "small_start": small_start, "n_steps": n_steps, "repeats": repeats, "seed": seed,
    }  # fmt: skip


def _trained_rows(task: Planted[LinearAttention], settings: Settings) -> list[Row]:
    # torch is an extra, and the closed form does without.
    from polyattn_papers.baselines.train_starts import StartsSettings, train_starts

    X, Y = np.asarray(task.X), task.layer(task.X)
    starts = StartsSettings(
        settings["n_heads"], settings["repeats"], settings["n_steps"], settings["small_start"],
        settings["seed"],
    )  # fmt: skip
    return [
        {
            "target": EXACT, "repeat": repeat,
            "risk": float(np.mean(np.sum((layer(X) - Y) ** 2, axis=1))),
            "distance": coefficient_distance(layer, task.layer),
            "expected_distance": None, "expected_spread": None,
        }
        for repeat, layer in enumerate(train_starts(X, Y, starts))
    ]  # fmt: skip


def _row(target: str, repeat: int, difference: NDArray, second: NDArray) -> Row:
    """Distance, and risk on the exact targets: the quadratic form of the second moment."""
    flat = difference.reshape(len(difference), -1)
    risk = float(np.sum(flat @ second * flat))
    distance = float(np.linalg.norm(flat))
    return {"target": target, "repeat": repeat, "risk": max(risk, 0.0), "distance": distance}


def _expected(second: NDArray, n_rows: int, n_outputs: int) -> Row:
    """Noise of variance s^2 moves each output's coefficients by N(0, s^2 Lambda^-1 / N).

    The root mean square distance, and the standard deviation of the squared one.
    """
    variances = NOISE**2 / (n_rows * np.linalg.eigvalsh(second))
    return {
        "expected_distance": float(np.sqrt(n_outputs * np.sum(variances))),
        "expected_spread": float(np.sqrt(2 * n_outputs * np.sum(variances**2))),
    }
