"""The rival: M of the same map and the same linear map of tokens, trained by Adam."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from polyattn.linearising.joint_fit import JointFit
from polyattn.linearising.layer_view import LayerView
from polyattn.numerics.parallel import map_pieces
from polyattn.sequences import SequenceBatch


def train_by_adam(
    view: LayerView, batch: SequenceBatch, seconds: float, skip: bool
) -> dict[str, JointFit]:
    """What Adam reaches in the time of the fit ("adam"), and in ten times that ("adam_10").

    It gets all features ready-made, which takes no part of its time, from zero, with the best of
    several learning rates, each of which has the whole time.
    Memory: the features of all sequences.
    """
    from polyattn.interop.torch.train_mixing import HeadFeatures, train_mixing

    def features(X: Any, h: int) -> tuple[HeadFeatures, Any]:
        block = view.block(X, h)
        return HeadFeatures(block.phi, block.rows, block.own), block.targets

    examples = []
    for X in view.blocks(batch):
        found = map_pieces(partial(features, X), range(view.heads.n_heads))
        outputs = view.in_outputs([targets for _, targets in found])
        tokens = view.tokens(X).reshape(*outputs.shape[:2], -1) if skip else None
        examples.append(([each for each, _ in found], tokens, outputs))
    coordinates = [E for _, E in view.coordinates]
    trained = train_mixing(examples, coordinates, (seconds, 10.0 * seconds))
    names = ("adam", "adam_10")
    return {
        name: JointFit([np.asarray(M) for M in mixings], weights, 0, True)
        for name, (mixings, weights) in zip(names, trained, strict=True)
    }
