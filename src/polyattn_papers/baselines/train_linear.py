"""train_linear: one layer of linear attention trained by Adam at a point of the paper's grid.

Adam with rate 0.01 and batches of 64 sequences, as in the paper's grid [yau2024: appendix G.1];
start and scaling of ``LinearHeads``, and the clipping of gradients, are ours; float32.  The forward
pass takes the fastest known form (``baselines/forms.py``) unless another one is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import NDArray

from polyattn.model import LinearAttention
from polyattn_papers.baselines.linear import LinearHeads, generator_of
from polyattn_papers.baselines.threads import fastest_n_threads, n_threads
from polyattn_papers.baselines.train import Limit, as_float32
from polyattn_papers.baselines.train_validated import (
    AdamSettings,
    LabelledSequences,
    Listener,
    train_validated,
)


@dataclass(frozen=True)
class LinearSettings(AdamSettings):
    """Adam's settings, heads, and the ``form`` of the forward pass: the fastest, or a named one."""

    n_heads: int = 1
    form: str | None = None


@dataclass(frozen=True)
class LinearRun:
    """A run: the validation error after so many seconds of training, and the final layer."""

    settings: LinearSettings
    seconds: tuple[float, ...]
    errors: tuple[float, ...]
    n_steps: int
    layer: LinearAttention


def train_linear(
    X: NDArray,
    Y: NDArray,
    X_validation: NDArray,
    Y_validation: NDArray,
    seconds: float,
    settings: LinearSettings | None = None,
    on_look: Listener | None = None,
) -> LinearRun:
    """Train a causal layer for ``seconds``; looking at the validation error is not counted.

    X (N, n, d) and Y (N, n, e).  Errors are means over positions of ||y - F(X)||^2, computed in
    float64.  ``on_look(elapsed, error)`` is called at every look.
    """
    chosen = settings or LinearSettings()
    generator = generator_of(chosen.seed)
    model = LinearHeads(X.shape[2], Y.shape[2], chosen.n_heads, generator, chosen.form)
    batch = model.prepare(as_float32(X[: chosen.batch_size]))

    def differentiate() -> None:
        model(*batch).square().mean().backward()

    training, validation = LabelledSequences(X, Y), LabelledSequences(X_validation, Y_validation)
    with n_threads(fastest_n_threads(differentiate)):
        run = train_validated(model, training, validation, Limit(seconds), chosen, on_look)
    return LinearRun(chosen, run.seconds, run.errors, run.n_steps, model.as_layer())
