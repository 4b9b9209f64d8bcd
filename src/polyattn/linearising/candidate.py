"""A candidate: one feature map for all heads, fitted, and the layer that it makes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.linearising.fit_heads import fit_heads
from polyattn.linearising.fitted_denominator import fit_ratios
from polyattn.linearising.head_blocks import Replacement
from polyattn.linearising.joint_fit import JointFit, fit_together
from polyattn.linearising.layer_view import KEPT_BYTES, LayerBlocks, LayerView
from polyattn.linearising.make_maps import MapName, Sample, make_map
from polyattn.linearising.measure import (
    Method,
    ReplacedHeads,
    relative_errors,
    replaced,
    token_maps,
    token_wise,
    unfitted_hedgehog,
    unfitted_taylor,
)
from polyattn.linearising.softmax_heads import SoftmaxHeads
from polyattn.model.linearised import LinearisedAttention
from polyattn.model.rotary import Turns
from polyattn.sequences import SequenceBatch, equal_sequences

Array = NDArray[np.float64]

# Tokens from which landmarks and leading directions are found.
SAMPLE_TOKENS = 1 << 12

# The share of the training sequences that chooses the ridge.
CHOOSING = 0.2

# The relative ridge of fitted denominators, which sums left out cannot judge.
RATIO_RIDGE = 1e-4


@dataclass(frozen=True)
class Options:
    """What was asked for, checked."""

    n_features: int
    denominator: str
    window: int | None
    skip: bool
    joint: bool
    ridge: float | None


@dataclass(frozen=True, eq=False)
class Candidate:
    """One map, fitted: each head by itself, what the layer has of them, and the layer.

    of_tokens : linear maps of the query tokens alone, if they were needed
    """

    view: LayerView
    alone: ReplacedHeads
    joint: JointFit
    ridges: Array
    layer: LinearisedAttention
    seconds: float
    of_tokens: list[Array] | None
    blocks: LayerBlocks


def fit_candidate(
    heads: SoftmaxHeads,
    training: SequenceBatch,
    name: MapName,
    options: Options,
    rng: np.random.Generator,
) -> Candidate:
    """The fit of one map."""
    start = time.perf_counter()
    mean = np.asarray(training.values[:].mean(axis=0, dtype=np.float64))
    samples = _samples(heads, training, rng)
    bounded = options.denominator in ("tokens", "fitted")
    feature_map = make_map(name, heads, samples, options.n_features, rng, bounded)
    denominator = _denominator(options.denominator, feature_map.key.positive, feature_map.name)
    view = LayerView(heads, feature_map, Replacement(heads.mode, denominator, options.window), mean)
    parts = _parts(view, training, options.ridge is None and denominator != "fitted")
    blocks = LayerBlocks([block for part in parts for block in part.blocks])
    of_tokens = token_maps(view, blocks) if options.skip else None
    if denominator == "fitted":
        ridge = RATIO_RIDGE if options.ridge is None else options.ridge
        mixings, ridges = fit_ratios(view, blocks, ridge), np.full(heads.n_heads, ridge)
    else:
        fitted = fit_heads(view, parts, options.ridge, of_tokens)
        mixings, ridges = [e.mixing for e in fitted], np.array([e.ridge for e in fitted])
    after: list[Array] | None = None
    skip: Array | None = None
    if options.skip:
        after = token_maps(view, blocks, mixings)
        # The sum of the maps of all heads, in the coordinates of the outputs.
        skip = view.in_outputs([W[None] for W in after])[0]
    joint = JointFit(mixings, skip, 0, True)
    if options.joint and denominator != "fitted":
        joint = fit_together(view, blocks, fitted, skip)
    seconds = time.perf_counter() - start
    alone = ReplacedHeads(mixings, after)
    return Candidate(view, alone, joint, ridges, _layer(view, joint), seconds, of_tokens, blocks)


def _samples(
    heads: SoftmaxHeads, training: SequenceBatch, rng: np.random.Generator
) -> list[Sample]:
    """Queries and keys of every head on some of the tokens."""
    offsets, count = training.offsets, len(training.values)
    asking = np.arange(count) if heads.mode != "last" else offsets[1:] - 1
    samples = []
    for each, W, b in (
        (asking, heads.W_Q, heads.b_Q),
        (np.arange(count), heads.W_K, heads.b_K),
    ):
        chosen = np.sort(rng.permutation(each)[:SAMPLE_TOKENS])
        places = chosen - offsets[np.searchsorted(offsets, chosen, side="right") - 1]
        seen = np.asarray(training.values[:][chosen], dtype=np.float64) @ W + b[:, None]
        if heads.frequencies is not None:
            angles = places[:, None] * heads.frequencies
            seen = Turns(np.cos(angles), np.sin(angles)).applied(seen)
        samples.append(seen)
    return list(zip(*samples, strict=True))


def _denominator(asked: str, positive: bool, name: str) -> str:
    if asked == "auto":
        return "features" if positive else "tokens"
    if asked == "features" and not positive:
        raise InvalidInput(
            "denominator='features' needs features above zero, and those of the map "
            f"{name!r} are not; leave it out, or give denominator='tokens'."
        )
    return asked


def _layer(view: LayerView, joint: JointFit) -> LinearisedAttention:
    """The fit as a layer: means of tokens and values become constants."""
    heads, mean = view.heads, view.mean
    b_O = heads.b_O + np.einsum("d,hdv,hve->e", mean, heads.W_V, heads.W_O)
    skip = None
    if joint.skip is not None:
        skip = joint.skip[:-1]
        b_O = b_O + joint.skip[-1] - mean @ skip
    return LinearisedAttention(
        heads.W_Q, heads.W_K, heads.b_Q, heads.b_K, heads.W_V,
        -np.einsum("d,hdv->hv", mean, heads.W_V), heads.W_O, b_O, view.feature_map,
        np.stack(joint.mixings), heads.mode, view.replacement.denominator,
        view.replacement.window, skip, heads.frequencies,
    )  # fmt: skip


def methods_of(fitted: Candidate) -> dict[str, Method]:
    """The fit, and what it is compared with."""
    view, joint = fitted.view, fitted.joint
    of_tokens = fitted.of_tokens or token_maps(view, fitted.blocks)
    return {
        "fit": replaced(fitted.alone, joint.mixings, joint.skip),
        "token_wise": token_wise(of_tokens),
        "taylor": unfitted_taylor(),
        "hedgehog": unfitted_hedgehog(view),
    }


def by_adam(fitted: Candidate) -> dict[str, Method]:
    """M of the same map, trained by Adam."""
    if fitted.view.replacement.denominator == "fitted":
        raise InvalidInput(
            "adam=True compares what is linear in M; leave out denominator='fitted'."
        )
    from polyattn.linearising.adam import train_by_adam

    found, skip = {}, fitted.joint.skip is not None
    for name, trained in train_by_adam(fitted.view, fitted.blocks, fitted.seconds, skip).items():
        found[name] = replaced(None, trained.mixings, trained.skip)
    return found


def layer_error(fitted: Candidate, batch: SequenceBatch | None) -> float:
    """The relative error of the layer."""
    method = replaced(None, fitted.joint.mixings, fitted.joint.skip)
    return errors_on(fitted, batch, {"fit": method})["fit"][-1]


def errors_on(
    fitted: Candidate, batch: SequenceBatch | None, methods: Mapping[str, Method]
) -> dict[str, list[float]]:
    """Relative errors of methods on other sequences, or on those of the fit."""
    blocks = fitted.blocks if batch is None else fitted.view.blocks(batch)
    return relative_errors(fitted.view, blocks, methods)


def _parts(view: LayerView, training: SequenceBatch, choosing: bool) -> list[LayerBlocks]:
    """All sequences, or those that a ridge is fitted on, and those that choose it.

    Copies stand beside each other in ``training``, and stay together.
    """
    border = len(training)
    if choosing:
        numbers = equal_sequences((training, None))
        n_different = numbers.max() + 1
        border = int(np.count_nonzero(numbers < n_different - int(CHOOSING * n_different)))
    ends = [0, border] if border == len(training) else [0, border, len(training)]
    pairs = pairwise(ends)
    share = KEPT_BYTES // len(training)
    return [view.blocks(training.part(a, b), (b - a) * share) for a, b in pairs]
