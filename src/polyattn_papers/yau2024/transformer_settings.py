"""How the Transformer beside the programs' experiments is built and trained; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransformerSettings:
    """Sizes and training; ``n_steps`` bounds the work, so a run repeats itself bit by bit.

    Training ends sooner once ``enough`` of the judged tokens are right, or when the share has
    not grown for ``patience`` looks, one every ``look`` steps.
    """

    n_layers: int = 2
    width: int = 128
    n_heads: int = 4
    n_steps: int = 600
    batch_size: int = 32
    learning_rate: float = 2e-3
    warm_up: int = 50
    look: int = 50
    patience: int = 6
    enough: float = 0.99
    seed: int = 0

    @property
    def sentence(self) -> str:
        """What a reader must know before the Transformer is compared with anything."""
        return (
            f"It has {self.n_layers} layers of width {self.width} and {self.n_heads} heads, and is "
            f"trained for at most {self.n_steps} steps with {self.batch_size} runs each, fewer "
            f"where {self.look * self.patience} steps bring nothing: longer training might do with "
            "fewer tokens."
        )
