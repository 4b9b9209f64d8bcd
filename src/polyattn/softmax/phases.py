"""What each phase of learning measured: a name, a sentence, and figures by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Phase:
    """One step on the way, in words and numbers; figures are plain JSON types."""

    name: str
    sentence: str
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; ``Phase(**...)`` is the inverse."""
        return {
            "name": self.name,
            "sentence": self.sentence,
            "figures": self.figures,
            "seconds": self.seconds,
        }
