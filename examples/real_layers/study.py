"""What is asked of the attention of a trained encoder: read it, look into it, replace it, query it.

Each part is one call of polyattn on what the layers of the encoder are given; the scripts
sentence_heads.py and reaction_heads.py do it for two models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from encoder import Encoder, Step
from numpy.typing import NDArray

import polyattn as pa


@dataclass(frozen=True)
class Study:
    """An encoder, token ids of some texts, and what its layers are given for them."""

    encoder: Encoder
    ids: Sequence[NDArray[np.intp]]
    steps: list[Step]
    layers: list[pa.SoftmaxAttention]

    @classmethod
    def of(cls, encoder: Encoder, source: Any, ids: Sequence[NDArray[np.intp]]) -> Study:
        """Layers read from ``source``, a file or a state dict, beside what the encoder computes."""
        config = {"model_type": encoder.kind, "num_attention_heads": encoder.n_heads}
        blocks = range(encoder.n_layers if encoder.kind == "bert" else 1)
        layers = [pa.interop.from_weights(source, block, config=config) for block in blocks]
        if encoder.kind == "albert":
            layers *= encoder.n_layers
        return cls(encoder, ids, encoder.steps(ids), layers)

    def reading_error(self) -> float:
        """The largest difference of a layer to the attention of the encoder, beside its size."""
        worst = 0.0
        for layer, step in zip(self.layers, self.steps, strict=True):
            for found, known in zip(layer(list(step.tokens)), step.attended, strict=True):
                worst = max(worst, float(np.abs(found - known).max() / np.abs(known).max()))
        return worst

    def audit(self, layers: Sequence[int] | None = None) -> pa.HeadAudit:
        """How much of each head attention of low order explains."""
        chosen = range(len(self.layers)) if layers is None else layers
        return pa.audit([self.layers[i] for i in chosen], [self.steps[i].tokens for i in chosen])

    def linearise(self, layer: int, **options: Any) -> Any:
        """The linear attention that comes closest to a layer, on what the layer is given."""
        return pa.linearise(self.layers[layer], self.steps[layer].tokens, **options)

    def embedding_change(
        self, ids: Sequence[NDArray[np.intp]], instead: Mapping[int, Any]
    ) -> NDArray[np.float64]:
        """1 - cosine between embeddings of texts with some layers replaced, and without (N,)."""
        known = self.encoder.embeddings(ids)
        found = self.encoder.embeddings(ids, instead)
        along = np.sum(known * found, axis=1)
        return 1.0 - along / np.linalg.norm(known, axis=1) / np.linalg.norm(found, axis=1)

    def query(self, layer: int, **options: Any) -> pa.QueryResult:
        """The heads of a layer, from its answers alone."""
        asked = self.layers[layer]
        return pa.learn_from_queries(asked, asked.n_dims, bias=asked.bias, **options)


def shown(name: str, result: Any, folder: Path) -> None:
    """Print a result, and write its page."""
    print(f"\n{name}\n{result}")
    result.report(folder / f"{name}.html")
