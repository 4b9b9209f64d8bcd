"""BERT and ALBERT from their weights, in float64, and what the attention of each layer is given.

Both are post-norm encoders without a mask.  With tokens X (n, d) of a sequence, a layer computes

    U = norm(X + attention(X)),      X' = norm(U + W_2 gelu(W_1 U + b_1) + b_2),

and ALBERT applies one and the same layer n_layers times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, softmax

Array = NDArray[np.float64]

#: From tokens (B, n, d) to what attention adds to them.
Attention: TypeAlias = Callable[[Array], Array]

# Our names of the parts of a layer -> those in a file.
BERT = {
    "query": "attention.self.query", "key": "attention.self.key",
    "value": "attention.self.value", "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm", "up": "intermediate.dense",
    "down": "output.dense", "norm": "output.LayerNorm",
}  # fmt: skip
ALBERT = {
    "query": "attention.query", "key": "attention.key", "value": "attention.value",
    "out": "attention.dense", "attention_norm": "attention.LayerNorm", "up": "ffn",
    "down": "ffn_output", "norm": "full_layer_layer_norm",
}  # fmt: skip
SHARED_LAYER = "encoder.albert_layer_groups.0.albert_layers.0"


@dataclass(frozen=True)
class Step:
    """What the attention of one layer is given, and what it returns before the residual is added.

    Arrays (B, n, d), or lists of arrays (n_i, d) where lengths differ.
    """

    tokens: Array | list[Array]
    attended: Array | list[Array]


@dataclass(frozen=True)
class Encoder:
    """An encoder by its state dict: arrays under the names of transformers, without a prefix.

    kind : "bert" | "albert"
    epsilon : what is added to variances in layer norms
    """

    weights: Mapping[str, NDArray]
    kind: str
    n_layers: int
    n_heads: int
    epsilon: float = 1e-12

    def steps(
        self,
        ids: Sequence[NDArray[np.intp]],
        n_layers: int | None = None,
        instead: Mapping[int, Attention] | None = None,
    ) -> list[Step]:
        """One ``Step`` for each of the first ``n_layers`` layers, for sequences of token ids.

        Sequences of one length run together; none is padded.
        instead : for some layers another attention, from tokens (B, n, d) to what is added to them
        Cost: O(n d (d + n)) per sequence and layer.
        """
        return self._run(ids, self.n_layers if n_layers is None else n_layers, instead or {})[0]

    def embeddings(
        self, ids: Sequence[NDArray[np.intp]], instead: Mapping[int, Attention] | None = None
    ) -> Array:
        """The mean over tokens of what the last layer returns (N, d)."""
        return np.stack(
            [each.mean(axis=0) for each in self._run(ids, self.n_layers, instead or {})[1]]
        )

    def _run(
        self, ids: Sequence[NDArray[np.intp]], n_layers: int, instead: Mapping[int, Attention]
    ) -> tuple[list[Step], list[Array]]:
        """The steps, and the tokens (n_i, d) behind the last of them."""
        lengths = np.array([len(each) for each in ids])
        nothing = np.zeros((0, 0))
        found = [[(nothing, nothing)] * len(ids) for _ in range(n_layers)]
        last = [nothing] * len(ids)
        for length in np.unique(lengths):
            numbers = np.flatnonzero(lengths == length)
            X = self.embed(np.stack([ids[number] for number in numbers]))
            for layer in range(n_layers):
                attended = instead[layer](X) if layer in instead else self.attend(layer, X)
                for row, number in enumerate(numbers):
                    found[layer][number] = (X[row], attended[row])
                X = self.finish(layer, X, attended)
            for row, number in enumerate(numbers):
                last[number] = X[row]
        return [_step(pairs, len(np.unique(lengths)) == 1) for pairs in found], last

    def embed(self, ids: NDArray[np.intp]) -> Array:
        """Token ids (B, n) -> tokens (B, n, d) that the first layer is given."""
        X = self._array("embeddings.word_embeddings.weight")[ids]
        X = X + self._array("embeddings.position_embeddings.weight")[: ids.shape[1]]
        X = X + self._array("embeddings.token_type_embeddings.weight")[0]
        X = self._norm("embeddings.LayerNorm", X)
        return X if self.kind == "bert" else self._linear("encoder.embedding_hidden_mapping_in", X)

    def attend(self, layer: int, X: Array) -> Array:
        """Softmax attention of the layer, with its output projection, without the residual."""
        B, n, _ = X.shape
        query, key, value = (
            self._linear(self.name(layer, part), X).reshape(B, n, self.n_heads, -1).swapaxes(1, 2)
            for part in ("query", "key", "value")
        )
        weights = softmax(query @ key.swapaxes(2, 3) / np.sqrt(query.shape[3]), axis=3)
        heads = (weights @ value).swapaxes(1, 2).reshape(B, n, -1)
        return self._linear(self.name(layer, "out"), heads)

    def finish(self, layer: int, X: Array, attended: Array) -> Array:
        """The output of the layer from its input and what its attention returned."""
        X = self._norm(self.name(layer, "attention_norm"), X + attended)
        inner = _gelu(self._linear(self.name(layer, "up"), X))
        return self._norm(
            self.name(layer, "norm"), X + self._linear(self.name(layer, "down"), inner)
        )

    def name(self, layer: int, part: str) -> str:
        """What the file calls a part of a layer."""
        if self.kind == "bert":
            return f"encoder.layer.{layer}.{BERT[part]}"
        return f"{SHARED_LAYER}.{ALBERT[part]}"

    def _array(self, name: str) -> Array:
        return np.asarray(self.weights[name], np.float64)

    def _linear(self, name: str, X: Array) -> Array:
        return X @ self._array(f"{name}.weight").T + self._array(f"{name}.bias")

    def _norm(self, name: str, X: Array) -> Array:
        X = X - X.mean(axis=-1, keepdims=True)
        X = X / np.sqrt(np.mean(X**2, axis=-1, keepdims=True) + self.epsilon)
        return X * self._array(f"{name}.weight") + self._array(f"{name}.bias")


def _gelu(X: Array) -> Array:
    return 0.5 * X * (1.0 + erf(X / np.sqrt(2.0)))


def _step(pairs: list[tuple[Array, Array]], stacked: bool) -> Step:
    tokens, attended = (list(each) for each in zip(*pairs, strict=True))
    return Step(np.stack(tokens), np.stack(attended)) if stacked else Step(tokens, attended)
