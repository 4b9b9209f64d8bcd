"""audit_heads: how much of each softmax head is explained by attention of low order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn import interop
from polyattn.auditing.head_audit import HeadAudit
from polyattn.auditing.head_directions import HeadDirections, TokenWhitening
from polyattn.auditing.order_fits import OrderFit, fit_orders
from polyattn.auditing.order_pairs import HeadData, SeenBlock
from polyattn.errors import InvalidInput
from polyattn.model import SoftmaxAttention
from polyattn.numerics.arrays import places_by_length
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.numerics.scaling import require_powers
from polyattn.sequences import SequenceBatch, as_batch, equal_sequences, split_apart

Array = NDArray[np.float64]

# The part of the sequences that is held out where no others are given.
HELD_OUT = 0.25

# In mode "causal" fits use so many positions; more would take minutes for each head.
MOST_POSITIONS = 1 << 12

# Outputs that differ by less than this, relative to values, are constant but for rounding.
ROUNDING = 1e-12


def softmax_layers(layer: Any) -> list[SoftmaxAttention]:
    """The layers of an audit without targets, from one of them or a list."""
    given = list(layer) if isinstance(layer, list | tuple) else [layer]
    found = []
    for each in given:
        read = interop.torch_layer(each) if interop.is_torch_module(each) else each
        if isinstance(read, interop.Projections) and read.kind == "softmax":
            read = read.to_layer()
        if not isinstance(read, SoftmaxAttention):
            raise InvalidInput(
                "audit needs sequences X and their targets Y, or a source with both; without Y it "
                "looks into the heads of softmax layers, and layer must be a SoftmaxAttention, "
                f"Projections of one, or a list of these; got {type(each).__name__}."
            )
        found.append(read)
    if not found:
        raise InvalidInput("layer is an empty list; give at least one softmax layer.")
    return found


def audit_heads(
    layers: Sequence[SoftmaxAttention],
    X: Any,
    X_test: Any = None,
    random_state: RandomState = 0,
    several: bool = False,
) -> HeadAudit:
    """How much of each head attention of low order explains, on sequences that are held out.

    Parameters
    ----------
    layers : softmax layers
    X : the sequences that the layer is given; if ``several``, a list of them, one for each layer
    X_test : in the same form, the sequences that shares are measured on
        By default a quarter of X is held out, the same ones for layers with as many sequences;
        equal sequences stay together.
    random_state : int, Generator or None; which ones

    Guarantee: no share on the training data decreases from one order to the next, up to 1e-6;
    units of coordinates and outputs do not count.
    Cost: for each head that of ``fit_orders``; memory for 10 numbers per position and output.
    """
    of_layers = _one_for_each(X, "X", layers, several)
    others = None if X_test is None else _one_for_each(X_test, "X_test", layers, several)
    seed = int(require_generator(random_state).integers(1 << 32))
    parts = []
    for number, layer in enumerate(layers):
        batch = as_batch(of_layers[number], n_dims=layer.n_dims)
        require_powers(batch.values, "X", 2)
        if others is None:
            train, test = _split(batch, np.random.default_rng(seed))
        else:
            train, test = batch, as_batch(others[number], "X_test", n_dims=layer.n_dims)
            require_powers(test.values, "X_test", 2)
        parts.append(_audit_layer(layer, train, test))
    heads = [part.heads for part in parts]
    wholes = [part.whole for part in parts]
    return HeadAudit(
        shares=np.concatenate([each.shares for each in heads]),
        training_shares=np.concatenate([each.training for each in heads]),
        errors=np.concatenate([each.errors for each in heads]),
        constant_shares=np.concatenate([part.constant for part in parts]),
        sizes=np.concatenate([part.sizes for part in parts]),
        logit_sizes=np.concatenate([part.logit_sizes for part in parts]),
        logit_shares=np.concatenate([part.logit_shares for part in parts]),
        head_layers=np.repeat(np.arange(len(layers)), [layer.n_heads for layer in layers]),
        layer_shares=np.concatenate([each.shares for each in wholes]),
        layer_training_shares=np.concatenate([each.training for each in wholes]),
        layer_errors=np.concatenate([each.errors for each in wholes]),
        n_training=np.array([part.counts[0] for part in parts]),
        n_held_out=np.array([part.counts[1] for part in parts]),
        modes=tuple(layer.mode for layer in layers),
    )


class _Shares(NamedTuple):
    """Shares (rows, orders) on sequences held out, on those of training, and standard errors."""

    shares: Array
    training: Array
    errors: Array


@dataclass(frozen=True, eq=False)
class _LayerShares:
    heads: _Shares
    whole: _Shares
    constant: Array
    sizes: Array
    logit_sizes: Array
    logit_shares: Array
    counts: tuple[int, int]


def _one_for_each(
    X: Any, name: str, layers: Sequence[SoftmaxAttention], several: bool
) -> list[Any]:
    if not several:
        return [X]
    if not isinstance(X, list | tuple) or len(X) != len(layers):
        came = f"{len(X)} of them" if isinstance(X, list | tuple) else type(X).__name__
        raise InvalidInput(
            f"of {len(layers)} layers {name} must be a list of {len(layers)}, the sequences that "
            f"each of them is given; got {came}."
        )
    return list(X)


def _split(batch: SequenceBatch, rng: np.random.Generator) -> tuple[SequenceBatch, SequenceBatch]:
    """Sequences to fit, and sequences to measure on; equal ones stay together."""
    numbers = equal_sequences((batch, None))
    order = rng.permutation(numbers.max() + 1)
    if len(order) < 2:
        raise InvalidInput(
            "an audit of heads fits some sequences and measures on others, and X has one alone, "
            "or copies of one; give more sequences, or others as X_test."
        )
    held, others = split_apart(numbers, order, max(1, int(HELD_OUT * len(order))))
    return batch.chosen(np.sort(others)), batch.chosen(np.sort(held))


def _audit_layer(
    layer: SoftmaxAttention, train: SequenceBatch, test: SequenceBatch
) -> _LayerShares:
    """Each head by itself, and the sum of what was found for them against the whole layer."""
    whitening = TokenWhitening.of(_tokens(train, layer.bias))
    step = max(1, len(train.values) // MOST_POSITIONS) if layer.mode == "causal" else 1
    sides = [_Side.of(train, layer, whitening, step), _Side.of(test, layer, whitening, 1)]
    squared: list[list[Array]] = [[], []]
    found = []
    for h in range(layer.n_heads):
        features = HeadDirections.of(layer, h, whitening, sides[0].tokens)
        head, shift = _seen_head(layer, h, features, whitening)
        both = [side.data(features, head, shift) for side in sides]
        fits, centre = fit_orders(both[0]), _mean_output(both[0])
        for of_side, side, data in zip(squared, sides, both, strict=True):
            of_side.append(side.add(data, fits, centre, features.outputs))
        level = whitening.mean @ layer.value[h] + centre @ features.outputs
        found.append((features, float(level @ level)))
    n_rows = sum(each[0, 0].size // layer.n_outputs for each in sides[0].residuals)
    varying = np.array([each[0].sum() for each in squared[0]]) / n_rows
    rounding = ROUNDING**2 * np.array([np.sum(each.values**2) for each, _ in found])
    varying[varying <= rounding] = 0.0
    level = np.array([each for _, each in found])
    total, power = varying.sum(), varying + level
    whole = [side.squared() for side in sides]
    # As the sides have them: by length.
    copies = equal_sequences((test, None))[np.argsort(test.lengths, kind="stable")]
    return _LayerShares(
        _shares([np.stack(each) for each in squared], varying == 0.0, copies),
        _shares([each[None] for each in whole], np.array([total == 0.0]), copies),
        np.divide(level, power, out=np.zeros_like(power), where=power > 0.0),
        varying / total if total > 0.0 else np.zeros_like(varying),
        np.array([each.logit_size for each, _ in found]),
        np.array([each.logit_share for each, _ in found]),
        (len(train), len(test)),
    )


@dataclass(eq=False)
class _Side:
    """Sequences to fit or to measure on, and the residuals of the whole layer there.

    residuals : for each length an array (1 + orders, B, positions, e): constant, then orders
    """

    batch: SequenceBatch
    tokens: list[Array]
    whitened: list[Array]
    rows: list[NDArray[np.int64]]
    mode: str
    step: int
    residuals: list[Array]

    @classmethod
    def of(
        cls, batch: SequenceBatch, layer: SoftmaxAttention, whitening: TokenWhitening, step: int
    ) -> _Side:
        flat = _tokens(batch, layer.bias)
        rows = list(places_by_length(batch.offsets))
        tokens = [flat[each] for each in rows]
        if layer.mode == "last":
            lengths = batch.lengths
            rows = [np.flatnonzero(lengths == each.shape[1])[:, None] for each in rows]
        return cls(batch, tokens, [whitening(each) for each in tokens], rows, layer.mode, step, [])

    def data(self, features: HeadDirections, head: SoftmaxAttention, shift: Array) -> HeadData:
        """Beside the outputs of a head."""
        found = head(self.batch)
        outputs = (found if self.mode == "last" else np.concatenate(found)) - shift
        each = zip(self.whitened, self.tokens, self.rows, strict=True)
        blocks = [
            SeenBlock(features.see(whitened, tokens, self.mode), whitened, outputs[rows])
            for whitened, tokens, rows in each
        ]
        return HeadData(blocks, self.mode, self.step)

    def add(self, data: HeadData, fits: Sequence[OrderFit], centre: Array, outputs: Array) -> Array:
        """Squared errors (1 + orders, N) of a head, whose residuals are added to those here.

        outputs : (c, e), from the numbers that are counted to outputs
        """
        squared, lifted = [], []
        for seen in data.blocks:
            parts = []
            for block, own in data.parts_of(seen):
                guesses = [np.broadcast_to(centre, block.targets.shape)]
                guesses += [fit(block, own) for fit in fits]
                parts.append(block.targets - np.stack(guesses))
            residuals = np.concatenate(parts, axis=1)
            squared.append(np.sum(residuals**2, axis=(2, 3)))
            lifted.append(residuals @ outputs)
        before = self.residuals or [np.zeros(()) for _ in lifted]
        self.residuals = [old + new for old, new in zip(before, lifted, strict=True)]
        return np.concatenate(squared, axis=1)

    def squared(self) -> Array:
        """Squared errors (1 + orders, N) of the whole layer."""
        return np.concatenate([np.sum(each**2, axis=(2, 3)) for each in self.residuals], axis=1)


def _tokens(batch: SequenceBatch, bias: bool) -> Array:
    """Tokens (rows, D) with the constant one."""
    values = np.asarray(batch.values[:], dtype=np.float64)
    return np.column_stack([values, np.ones(len(values))]) if bias else values


def _seen_head(
    layer: SoftmaxAttention, h: int, features: HeadDirections, whitening: TokenWhitening
) -> tuple[SoftmaxAttention, Array]:
    """A layer of one head whose outputs, less a constant, are those of ``features.values``."""
    value = whitening.inward @ features.values
    turned, one = layer.rotary_heads, slice(h, h + 1)
    attn = layer.attn[one] if turned is None else (turned.query[one], turned.key[one])
    head = SoftmaxAttention(attn, value[None], layer.mode, layer.bias, layer.frequencies)
    return head, whitening.mean @ value


def _mean_output(data: HeadData) -> Array:
    """The mean output (c,) over the positions that are fitted."""
    parts = [block.targets.reshape(-1, data.n_outputs) for block, _ in data.parts()]
    return np.asarray(np.concatenate(parts).mean(axis=0))


def _shares(squared: list[Array], constant: NDArray[np.bool_], copies: NDArray[np.intp]) -> _Shares:
    """From squared errors (rows, 1 + orders, N) in training and held out; 1 of what is constant.

    copies : (N,), numbers of the held-out sequences: equal ones are one draw
    """
    found = []
    order = np.argsort(copies, kind="stable")
    firsts = np.unique(copies[order], return_index=True)[1]
    if len(firsts) < len(copies):
        squared[1] = np.add.reduceat(squared[1][:, :, order], firsts, axis=2)
    for each in squared:
        total = np.where(constant, 1.0, each[:, 0].sum(axis=1))
        ratio = each[:, 1:].sum(axis=2) / total[:, None]
        # Errors of a ratio of sums over sequences, which are drawn independently.
        spread = each[:, 1:] - ratio[:, :, None] * each[:, :1]
        n = each.shape[2]
        error = np.sqrt(np.sum(spread**2, axis=2) * n / max(n - 1, 1)) / total[:, None]
        share = np.where(constant[:, None], 1.0, 1.0 - ratio)
        found.append((share, np.where(constant[:, None], 0.0, error)))
    (training, _), (shares, errors) = found
    return _Shares(shares, training, errors)
