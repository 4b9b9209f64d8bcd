"""What is asked of the attention of a trained encoder: read it, look into it, replace it, query it.

Each part is one call of polyattn on what the layers of the encoder are given; the scripts
sentence_heads.py and reaction_heads.py do it for two models.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from encoder import Encoder, Step
from models import Model
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
        """The heads of a layer, from the answers of the encoder's own attention alone."""
        n_dims = self.layers[layer].n_dims
        asked = partial(self.encoder.attend, layer)
        return pa.learn_from_queries(asked, n_dims, bias=True, **options)


def main(model: Model, token_ids: Callable[..., list[Any]], description: str | None) -> None:
    """All that is asked of a model, by the words of the command line.

    token_ids : from the vocabulary of the model and a number of texts to their ids
    """
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--texts", type=int, default=400)
    arguments.add_argument("--layer", type=int, default=0, help="to be replaced and queried")
    arguments.add_argument("--out", type=Path, default=Path())
    chosen = arguments.parse_args()
    if model.missing:
        print(f"Nothing was done: {model.missing}.")
        return
    # The last fifth is seen by no fit.
    ids = token_ids(model.path(model.vocabulary), chosen.texts + chosen.texts // 5)
    fitted, fresh = ids[: chosen.texts], ids[chosen.texts :]
    run(model.encoder(), model.path(model.state), fitted, fresh, chosen.layer, chosen.out)


def run(
    encoder: Encoder,
    source: Any,
    ids: Sequence[NDArray[np.intp]],
    fresh: Sequence[NDArray[np.intp]],
    layer: int,
    folder: Path,
    n_features: int = 64,
) -> None:
    """All parts: what is found is printed, and pages are written to a folder.

    source : where ``pa.interop.from_weights`` finds the weights of the encoder
    ids, fresh : token ids of texts to fit, and of others
    layer : which one is replaced, by so many features of queries and keys, and queried
    """
    study = Study.of(encoder, source, ids)
    print(f"{len(study.layers)} layers, {study.layers[0]}")
    print(f"Read from weights they differ from the encoder by {study.reading_error():.1e}.")
    _show("heads", study.audit(), folder)
    linear = study.linearise(layer, n_features=n_features)
    _show("linearised", linear, folder)
    change = study.embedding_change(fresh, {layer: linear.layer})
    print(f"Embeddings of other texts: 1 - cosine {change.mean():.2g}, at most {change.max():.2g}.")
    asked = study.query(layer)
    _show("queries", asked, folder)
    if asked.layer is not None:
        match = pa.match_heads(asked.layer, study.layers[layer])
        print(f"Beside the weights: attn {match.worst_attn:.1e}, value {match.worst_value:.1e}.")


def _show(name: str, result: Any, folder: Path) -> None:
    """Print a result, write its page, and keep it."""
    print(f"\n{result}")
    result.report(folder / f"{name}.html")
    pa.save(result, folder / f"{name}.safetensors")
