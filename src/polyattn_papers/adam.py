"""The gradient baseline: the same layer trained by Adam with the paper's settings.

Start and scaling as in the paper's experiments [yau2024: section 4.1, G.1]; Adam with rate 0.01,
batches of 64 sequences, gradient norm clipped; float32.  The forward pass takes the fastest known
form (``baselines/forms.py``) unless another one is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import NDArray

from polyattn.model import LinearAttention
from polyattn_papers.baselines.descent import (
    DescentSettings,
    Examples,
    Limit,
    Listener,
    as_float32,
    descend,
)
from polyattn_papers.baselines.linear import LinearHeads, generator_of
from polyattn_papers.baselines.threads import fastest_n_threads, n_threads


@dataclass(frozen=True)
class AdamSettings(DescentSettings):
    """The paper's settings; ``form`` of the forward pass: the fastest one, or as it is named."""

    n_heads: int = 1
    form: str | None = None


@dataclass(frozen=True)
class AdamRun:
    """A run: the validation error after so many seconds of training, and the final layer."""

    settings: AdamSettings
    seconds: tuple[float, ...]
    errors: tuple[float, ...]
    n_steps: int
    layer: LinearAttention


def train(
    X: NDArray,
    Y: NDArray,
    X_validation: NDArray,
    Y_validation: NDArray,
    seconds: float,
    settings: AdamSettings | None = None,
    on_look: Listener | None = None,
) -> AdamRun:
    """Train a causal layer for ``seconds``; looking at the validation error is not counted.

    X (N, n, d) and Y (N, n, e).  Errors are means over positions of ||y - F(X)||^2, computed in
    float64.  ``on_look(elapsed, error)`` is called at every look.
    """
    chosen = settings or AdamSettings()
    generator = generator_of(chosen.seed)
    model = LinearHeads(X.shape[2], Y.shape[2], chosen.n_heads, generator, chosen.form)
    batch = model.prepare(as_float32(X[: chosen.batch_size]))

    def differentiate() -> None:
        model(*batch).square().mean().backward()

    with n_threads(fastest_n_threads(differentiate)):
        run = descend(
            model, Examples(X, Y), Examples(X_validation, Y_validation), Limit(seconds), chosen,
            on_look,
        )  # fmt: skip
    return AdamRun(chosen, run.seconds, run.errors, run.n_steps, model.as_layer())
