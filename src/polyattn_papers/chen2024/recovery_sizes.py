"""The sizes around which chen2024-recovery moves, and rows along one of them."""

from __future__ import annotations

from polyattn_papers.reproduction.experiment import Row, Settings

#: Where all sweeps meet.
BASE: Settings = {
    "n_sequences": 200, "n_tokens": 4, "n_dims": 8, "n_heads": 2, "logits": 1.0,
    "tokens": "boolean", "noise": 0.0,
}  # fmt: skip

#: The examples of cells with noise.
MANY = 1000


def along(rows: list[Row], swept: str, **fixed: object) -> list[Row]:
    """The rows that differ from ``BASE`` in ``swept`` and in what is fixed otherwise, alone."""
    wanted = {name: value for name, value in (BASE | fixed).items() if name != swept}
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]
