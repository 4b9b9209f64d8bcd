"""The rival: M of the same map and the same linear map of tokens, trained by Adam."""

from __future__ import annotations

from functools import partial

import numpy as np

from polyattn.linearising.joint_fit import JointFit
from polyattn.linearising.layer_view import LayerBlock, LayerBlocks, LayerView
from polyattn.numerics.parallel import map_pieces


def train_by_adam(
    view: LayerView, blocks: LayerBlocks, seconds: float, skip: bool
) -> dict[str, JointFit]:
    """What Adam reaches in the time of the fit ("adam"), and in ten times that ("adam_10").

    It gets all features ready-made, which takes no part of its time, from zero, with the best of
    several learning rates, each of which has the whole time.
    Memory: the features of all sequences.
    """
    from polyattn.interop.torch.train_mixing import HeadFeatures, train_mixing

    def features(block: LayerBlock, h: int) -> HeadFeatures:
        seen = block.of_head(h)
        return HeadFeatures(seen.phi, seen.rows, seen.own)

    examples, heads = [], range(view.heads.n_heads)
    for block in blocks:
        outputs = view.in_outputs(map_pieces(block.targets, heads))
        found = map_pieces(partial(features, block), heads)
        examples.append((found, block.tokens() if skip else None, outputs))
    coordinates = [E for _, E in view.coordinates]
    trained = train_mixing(examples, coordinates, (seconds, 10.0 * seconds))
    names = ("adam", "adam_10")
    return {
        name: JointFit([np.asarray(M) for M in mixings], weights, 0, True)
        for name, (mixings, weights) in zip(names, trained, strict=True)
    }
