"""LinearisedAttention: softmax heads whose weights are replaced by a feature map, in linear time.

Notation (ours -> flash-linear-attention, LoLCATs): queries and keys are those of the model that was
linearised; ``feature_map`` is the feature map of queries and of keys; ``mixing`` M stands between
them, and is the identity there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Described, Description, Reported
from polyattn.errors import InvalidInput, InvalidType, OutOfRange, require_choice
from polyattn.features.tokens import Tokens
from polyattn.files.fields import array, entries, integer, nullable, one_of, text
from polyattn.files.records import Record
from polyattn.model.attended import DENOMINATORS, attended_rows, window_rows
from polyattn.model.feature_maps import KINDS, FeatureMap, SideMap
from polyattn.model.layer import equal_blocks, kept, matrices, predicted_rows, shaped_outputs
from polyattn.model.rotary import Turns
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.progress import report
from polyattn.quoting import counted
from polyattn.sequences import MODES, SequenceBatch, Sequences
from polyattn.sizes_in_words import sizes_in_words
from polyattn.sources.source import Source

Array = NDArray[np.float64]

# Numbers of rows of one head that are in memory together.
BLOCK_NUMBERS = 1 << 22

# Fitted denominators have median one on the data of the fit; smaller ones count as this.
LEAST_DENOMINATOR = 0.1

HEADS = dict.fromkeys(("W_Q", "W_K", "W_V", "W_O", "mixing"), array((None, None, None)))
CONSTANTS = dict.fromkeys(("b_Q", "b_K", "b_V"), array((None, None)))
SIDES = dict.fromkeys(("query_matrix", "key_matrix"), array((None, None, None)))
OPTIONAL = {"skip": array((None, None)), "frequencies": array((None,))}
ARRAYS = entries(HEADS | CONSTANTS | SIDES | {"b_O": array((None,))}, OPTIONAL)
FIELDS = entries(
    {
        "mode": one_of(MODES), "denominator": one_of(DENOMINATORS), "map": text(100),
        "query_kind": one_of(KINDS[:-1]), "key_kind": one_of(KINDS[:-1]),
        "window": nullable(integer(1)),
    }
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class LinearisedAttention(Reported, Described):
    """Attention heads with a feature map in the place of the exponential; cost linear in n.

    With q_t = x_t W_Q[h] + b_Q[h], k_s = x_s W_K[h] + b_K[h], v_s = x_s W_V[h] + b_V[h],

        y_t = b_O + x_t skip + sum_h sum_l (phi(q_t)^T M_h)_l Z_t[l] W_O[h],

    and rows Z_t[l] = sum_s psi_l(k_s) v_s / c_tl over the tokens s that t attends to.

    Attributes
    ----------
    W_Q, W_K : arrays (H, d, r); b_Q, b_K : (H, r); logits of softmax were q_t . k_s
    W_V, W_O : arrays (H, d, v) and (H, v, e); b_V : (H, v); b_O : (e,)
    feature_map : FeatureMap, phi of queries (F numbers) and psi of keys (G numbers)
    mixing : array (H, F, G), or (H, F, G + 1) with a window; M_h
    mode : "full" | "causal" | "last"
    denominator : "features" | "tokens" | "fitted"
        c_tl: the sum of psi_l over the tokens, or their number; "fitted": the sum of the weights
        phi(q_t)^T M_h psi(k_s), so that they sum to one.
    window : int or None
        The last row Z_t is then softmax attention over tokens at distances below it.
    skip : array (d, e) or None
    frequencies : array (r/2,) or None
        Of rotary positions: queries and keys are turned before features are taken.

    Cost of a call: O(n (F G + G v + window r)) per sequence and head.
    """

    W_Q: Array
    W_K: Array
    b_Q: Array
    b_K: Array
    W_V: Array
    b_V: Array
    W_O: Array
    b_O: Array
    feature_map: FeatureMap
    mixing: Array
    mode: str = "full"
    denominator: str = "features"
    window: int | None = None
    skip: Array | None = None
    frequencies: Array | None = None

    kind: ClassVar[str] = "linearised_attention"

    def __post_init__(self) -> None:
        require_choice("mode", self.mode, MODES)
        require_choice("denominator", self.denominator, DENOMINATORS)
        for name in HEADS:
            vars(self)[name] = matrices(getattr(self, name), name)
        for name in (*CONSTANTS, "b_O"):
            vars(self)[name] = kept(np.asarray(getattr(self, name)), name)
        for name in OPTIONAL:
            if getattr(self, name) is not None:
                vars(self)[name] = kept(np.asarray(getattr(self, name)), name)
        self._require_shapes()

    @property
    def n_heads(self) -> int:
        """H, the number of heads."""
        return len(self.W_Q)

    @property
    def n_dims(self) -> int:
        """Coordinates of an input token."""
        return self.W_Q.shape[1]

    @property
    def n_outputs(self) -> int:
        """e, the coordinates of an output."""
        return self.W_O.shape[2]

    def __call__(self, X: Sequences | Source) -> Any:
        """Outputs for sequences X, in the form of X, as those of every layer."""
        return shaped_outputs(X, self.n_dims, self.mode, self._rows)

    def __eq__(self, other: object) -> bool:
        """Equal parameters."""
        if not isinstance(other, LinearisedAttention):
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        return (
            self._words == other._words
            and mine.keys() == theirs.keys()
            and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        )

    def __hash__(self) -> int:
        return hash((*self._words, self.mixing.tobytes()))

    def __repr__(self) -> str:
        sizes = f"{self.n_dims} -> {self.n_outputs}"
        words = f"map {self.feature_map.name!r}, mode {self.mode!r}"
        return f"LinearisedAttention({counted(self.n_heads, 'head')}, {sizes}, {words})"

    def describe(self) -> Description:
        F, G = self.feature_map.shape
        sizes: dict[str, Any] = {"n_dims": self.n_dims, "n_outputs": self.n_outputs}
        sizes |= {"mode": self.mode, "bias": False}
        about = (
            f"Linearised attention, {counted(self.n_heads, 'head')}, {sizes_in_words(**sizes)}, "
            f"map {self.feature_map.name}"
        )
        facts: dict[str, Any] = {
            "map": self.feature_map.name, "query_features": F, "key_features": G,
            "denominator": self.denominator, "has_skip": self.skip is not None,
        }  # fmt: skip
        if self.window is not None:
            facts["window"] = self.window
        return Description(
            "A linearised attention layer", about, facts=facts,
            sizes={"n_heads": self.n_heads, **sizes},
            labels={"window": "window of softmax", "has_skip": "linear map of the query"},
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray]:
        """All parameters by name."""
        named = {name: getattr(self, name) for name in (*HEADS, *CONSTANTS, "b_O")}
        sides = {"query_matrix": self.feature_map.query.matrix}
        sides |= {"key_matrix": self.feature_map.key.matrix}
        beside = {name: getattr(self, name) for name in OPTIONAL}
        return named | sides | {name: each for name, each in beside.items() if each is not None}

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata; a function of one's own has no place."""
        if self.feature_map.name == "callable":
            raise InvalidType(
                "a layer whose feature map is a function cannot be saved: a file holds no code. "
                "Linearise with a map that has a name, or keep the function beside its arrays()."
            )
        return Record(self.kind, self.arrays(), self._metadata)

    @classmethod
    def from_record(cls, record: Record) -> LinearisedAttention:
        """The inverse of ``to_record``."""
        ARRAYS(record.arrays, "arrays")
        FIELDS(record.metadata, "metadata")
        given: dict[str, Any] = dict(record.arrays)
        held = record.metadata
        query = SideMap(held["query_kind"], given.pop("query_matrix"))
        key = SideMap(held["key_kind"], given.pop("key_matrix"))
        words = {name: held[name] for name in ("mode", "denominator", "window")}
        return cls(**given, **words, feature_map=FeatureMap(held["map"], query, key))

    @property
    def _metadata(self) -> dict[str, Any]:
        return {
            "mode": self.mode, "denominator": self.denominator, "window": self.window,
            "map": self.feature_map.name, "query_kind": self.feature_map.query.kind,
            "key_kind": self.feature_map.key.kind,
        }  # fmt: skip

    @cached_property
    def _words(self) -> tuple[Any, ...]:
        functions = (self.feature_map.query.function, self.feature_map.key.function)
        return (*self._metadata.values(), *functions)

    @single_threaded_blas()
    def _rows(self, batch: SequenceBatch) -> Array:
        """Outputs (n_rows, e) at the predicted positions."""
        outputs = np.empty((batch.n_rows(self.mode), self.n_outputs))
        done = 0
        for which, X in equal_blocks(Tokens.whole(batch, False)):
            found = np.concatenate([self._attend(X[a:b]) for a, b in self._parts(X)])
            outputs[predicted_rows(batch, self.mode, which)] = found.reshape(-1, self.n_outputs)
            done += found.size // self.n_outputs
            report(done, len(outputs))
        if not np.isfinite(outputs).all():
            raise OutOfRange(
                "outputs are larger than float64 holds: give tokens of the size of those that the "
                "layer was linearised on."
            )
        return outputs

    def _parts(self, X: Array) -> Any:
        per_token = self.mixing.shape[2] * (1 + self.W_V.shape[2])
        tokens = X.shape[1] if self.mode == "causal" else 1
        return even_ranges(len(X), max(1, BLOCK_NUMBERS // (per_token * tokens)))

    def _attend(self, X: Array) -> Array:
        """(B, n, d) -> (B, T, e), T = 1 in mode ``last``."""
        asking = X[:, -1:] if self.mode == "last" else X
        outputs = np.broadcast_to(self.b_O, (*asking.shape[:2], self.n_outputs)).copy()
        if self.skip is not None:
            outputs += asking @ self.skip
        turns = None if self.frequencies is None else Turns.of(self.frequencies, X.shape[1])
        for h in range(self.n_heads):
            queries = asking @ self.W_Q[h] + self.b_Q[h]
            keys, values = X @ self.W_K[h] + self.b_K[h], X @ self.W_V[h] + self.b_V[h]
            if turns is not None:
                queries, keys = turns.last(asking.shape[1]).applied(queries), turns.applied(keys)
            outputs += self._head(queries, keys, values, h) @ self.W_O[h]
        return outputs

    def _head(self, queries: Array, keys: Array, values: Array, h: int) -> Array:
        """The mean of values (B, T, v) that replaces the one of softmax."""
        if self.denominator == "fitted":
            values = np.concatenate([values, np.ones((*values.shape[:2], 1))], axis=2)
        weights = self.feature_map.query.features(queries, h) @ self.mixing[h]
        rows = attended_rows(keys, values, self.feature_map.key, h, self.mode, self.denominator)
        found = mixed_rows(weights, rows)
        if self.window is not None:
            own = window_rows(queries, keys, values, self.mode, self.window)
            found += weights[..., -1:] * own
        return normalised(found) if self.denominator == "fitted" else found

    def _require_shapes(self) -> None:
        H, d, r = self.W_Q.shape
        v, e = self.W_O.shape[1:]
        F, G = self.feature_map.shape
        wanted = {
            "W_K": (H, d, r), "b_Q": (H, r), "b_K": (H, r), "W_V": (H, d, v), "b_V": (H, v),
            "W_O": (H, v, e), "b_O": (e,), "mixing": (H, F, G + (self.window is not None)),
        }  # fmt: skip
        if self.skip is not None:
            wanted["skip"] = (d, e)
        if self.frequencies is not None:
            wanted["frequencies"] = (r // 2,)
        for name, shape in wanted.items():
            if getattr(self, name).shape != shape:
                raise InvalidInput(
                    f"{name} must have shape {shape}; got {getattr(self, name).shape}."
                )
        for side in (self.feature_map.query, self.feature_map.key):
            if side.matrix.shape[:2] != (H, r):
                raise InvalidInput(
                    f"the feature map must have matrices ({H}, {r}, m); got {side.matrix.shape}."
                )


def mixed_rows(weights: Array, rows: Array) -> Array:
    """sum_l weights_t[l] Z_t[l] (B, T, c); rows (B, 1 or T, G, c), of weights the first G count."""
    weights = weights[..., : rows.shape[2]]
    if rows.shape[1] == 1:
        return np.asarray(weights @ rows[:, 0])
    return np.asarray(np.einsum("btg,btgc->btc", weights, rows))


def normalised(sums: Array) -> Array:
    """Sums (..., c + 1) divided by their last number, or by LEAST_DENOMINATOR if that is less."""
    return np.asarray(sums[..., :-1] / np.maximum(sums[..., -1:], LEAST_DENOMINATOR))
