"""How much of the outputs is left unexplained: by the fit, and by what it is compared with.

Errors are squared errors of outputs relative to their variance on the same sequences, of each head
(after W_O) and of the layer, the sum of the heads.  Beside the fit stand

    token_wise  the best linear map of the query token with an intercept, by least squares
    taylor      weights 1 + l + l^2 / 2 of the logits l, made to sum to one; nothing is fitted
    hedgehog    weights softmax([q, -q]) . softmax([k, -k]), made to sum to one; nothing is fitted
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from polyattn.linearising.layer_view import LayerBlock, LayerBlocks, LayerView
from polyattn.linearising.make_maps import hedgehog
from polyattn.linearising.token_map import TokenSums
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.parallel import map_pieces

Array = NDArray[np.float64]

# Outputs of one head (B, T, c) in its own coordinates, on a block of sequences.
HeadOutputs = Callable[[LayerBlock, int], Array]

BLOCK_WEIGHTS = 1 << 20


class Method:
    """Something that predicts the outputs of single heads, and what it adds to those of the layer.

    outputs : of a head on a block, (B, T, c)
    added : beside the heads, (B, T, e); None: nothing
    of_layer : what the layer's heads are, where they differ from ``outputs``
    """

    def __init__(
        self,
        outputs: HeadOutputs,
        added: Callable[[LayerBlock], Array] | None = None,
        of_layer: HeadOutputs | None = None,
    ) -> None:
        self.outputs, self.added, self.of_layer = outputs, added, of_layer


def relative_errors(
    view: LayerView, blocks: LayerBlocks, methods: Mapping[str, Method]
) -> dict[str, list[float]]:
    """For each method H + 1 relative errors: of every head, and of the layer.

    Where outputs do not vary, an error is 0 if there is none, and infinite otherwise.
    """
    H = view.heads.n_heads
    squares = {name: np.zeros(H + 1) for name in methods}
    power, n_rows = np.zeros(H + 1), 0
    totals = [np.zeros(E.shape[0]) for _, E in view.coordinates] + [np.zeros(view.heads.n_outputs)]
    for block in blocks:
        of_heads = map_pieces(partial(_of_head, block, methods), range(H))
        targets = [target for target, _ in of_heads]
        whole = view.in_outputs(targets)
        for i, each in enumerate([*targets, whole]):
            power[i] += np.sum(each * each)
            totals[i] += each.sum(axis=(0, 1))
        n_rows += whole.shape[0] * whole.shape[1]
        for name, method in methods.items():
            parts = [found[name] for _, found in of_heads]
            squares[name][:H] += [error for error, _ in parts]
            missed = whole - view.in_outputs([part for _, part in parts])
            if method.added is not None:
                missed = missed - method.added(block)
            squares[name][H] += np.sum(missed * missed)
    variance = power - np.array([total @ total for total in totals]) / n_rows
    # What rounding leaves of outputs that are all the same.
    variance[variance <= 1e-24 * power] = 0.0
    return {name: _ratios(each, variance) for name, each in squares.items()}


@dataclass(frozen=True, eq=False)
class ReplacedHeads:
    """M of every head by itself, and linear maps (d + 1, c) that are added; None: none."""

    mixings: list[Array]
    weights: list[Array] | None

    def outputs(self, block: LayerBlock, h: int) -> Array:
        """Outputs (B, T, c) of a head."""
        found = block.outputs(h, self.mixings[h])
        return found if self.weights is None else found + block.linear(self.weights[h])


def replaced(alone: ReplacedHeads | None, mixings: Sequence[Array], skip: Array | None) -> Method:
    """Heads that are replaced: ``alone`` each by itself, in the layer with ``mixings``.

    alone : None where heads are only known in the layer
    skip : W (d + 1, e), which the layer adds; or None
    """

    def of_layer(block: LayerBlock, h: int) -> Array:
        return block.outputs(h, mixings[h])

    added = None if skip is None else (lambda block: block.linear(skip))
    return Method(of_layer if alone is None else alone.outputs, added, of_layer)


def token_wise(weights: Sequence[Array]) -> Method:
    """Linear maps (d + 1, c) of the query token, one for each head; see ``token_maps``."""
    return Method(lambda block, h: block.linear(weights[h]))


def token_maps(
    view: LayerView, blocks: LayerBlocks, mixings: Sequence[Array] | None = None
) -> list[Array]:
    """For each head the linear map (d + 1, c) of the query token with the least squared error.

    mixings : M of each head that is replaced: then for what that leaves
    """
    sizes = [len(E) for _, E in view.coordinates]
    sums = TokenSums(view.heads.n_dims + 1, sum(sizes))

    def wanted(block: LayerBlock, h: int) -> Array:
        target = block.targets(h)
        return target if mixings is None else target - block.outputs(h, mixings[h])

    for block in blocks:
        found = map_pieces(partial(wanted, block), range(len(sizes)))
        sums.add(block.tokens(), np.concatenate(found, axis=2))
    return np.split(sums.solve(), np.cumsum(sizes)[:-1], axis=1)


def unfitted_taylor() -> Method:
    """Second-order Taylor weights of the logits."""

    def weights(queries: Array, keys: Array, _: int) -> Array:
        logits = queries @ keys.transpose(0, 2, 1)
        return np.asarray(1.0 + logits + 0.5 * logits * logits)

    return Method(lambda block, h: _weighted(block, h, weights))


def unfitted_hedgehog(view: LayerView) -> Method:
    """Hedgehog weights before any training."""
    side = hedgehog(view.heads)

    def weights(queries: Array, keys: Array, h: int) -> Array:
        return np.asarray(side.features(queries, h) @ side.features(keys, h).transpose(0, 2, 1))

    return Method(lambda block, h: _weighted(block, h, weights))


def _of_head(
    block: LayerBlock, methods: Mapping[str, Method], h: int
) -> tuple[Array, dict[str, tuple[float, Array]]]:
    """Targets of a head, and for each method its squared error and what the layer has of it."""
    target = block.targets(h)
    found = {}
    for name, method in methods.items():
        outputs = method.outputs(block, h)
        missed = target - outputs
        of_layer = outputs if method.of_layer is None else method.of_layer(block, h)
        found[name] = (float(np.sum(missed * missed)), of_layer)
    return target, found


def _weighted(block: LayerBlock, h: int, weigh: Callable[[Array, Array, int], Array]) -> Array:
    """Means of values (B, T, c) with positive weights that are divided by their sum."""
    (queries, keys, values), mode = block.seen(h), block.view.replacement.mode
    outputs = np.empty((*queries.shape[:2], values.shape[2]))
    at_once = max(1, BLOCK_WEIGHTS // (len(keys) * keys.shape[1]))
    for first, stop in even_ranges(queries.shape[1], at_once):
        weights = weigh(queries[:, first:stop], keys, h)
        if mode == "causal":
            weights[:, np.arange(keys.shape[1]) > np.arange(first, stop)[:, None]] = 0.0
        weights /= weights.sum(axis=2, keepdims=True)
        outputs[:, first:stop] = weights @ values
    return outputs


def _ratios(squares: Array, variance: Array) -> list[float]:
    """Squared errors relative to variances; 0/0 is no error."""
    empty = np.where(squares > 0.0, np.inf, 0.0)
    return np.divide(squares, variance, out=empty, where=variance > 0.0).tolist()
