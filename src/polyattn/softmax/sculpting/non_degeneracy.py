"""What sculpting needs of a layer, measured on the layer itself (conditions of our own).

The paper assumes that attention and values are non-degenerate; what follows is what the phases as
they stand here rest on.  The fourth is a bound: on a row let p be the pattern of least residual r
with the true S, and D_i = p_i - p.  Then r = sum_i D_i X V_i, and with M the stacked E^T X V_i, E
an orthonormal basis of the vectors of sum zero,

    sum_i |D_i|^2 <= |r|^2 / sigma_min(M)^2,

so that a small residual means agreement exactly as far as sigma_min(M) is not small.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.model import SoftmaxAttention
from polyattn.model.compare import require_softmax
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sequences import Sequences, as_batch
from polyattn.softmax.examples import ExampleBlock, Examples, Matrix
from polyattn.softmax.polish.projection import patterns
from polyattn.softmax.sculpting.row_patterns import sum_zero_basis, views
from polyattn.softmax.sculpting.sculpt import LEAST_CARRIED, LEAST_SINGULAR, Condition

# Sequences that are looked at.
MOST_SEQUENCES = 1 << 12

# Heads agree on a row when no weight differs by more than the first; attend to one key alone when
# all have the second there.  One-hot rows per coordinate that are needed, as in phase 3.
AGREE, ONE_HOT, ONE_HOT_PER_DIM = 0.1, 0.9, 8

# How independent heads must be, and how well disagreement must be seen in this quantile of rows.
LEAST_INDEPENDENT, LEAST_SEEN, QUANTILE = 0.05, 0.02, 0.1

WORDS = {
    "values do not cancel": "the sum of the values carries {measured:.0%} of the squared outputs",
    "sum of values is regular": (
        "through the sum of values patterns are seen to {measured:.2g} of the best direction"
    ),
    "heads are independent": (
        "the heads, brought to norm one, have a smallest singular value of {measured:.2g}"
    ),
    "disagreement is seen": (
        "in all but a tenth of the sequences heads that differ leave at least {measured:.2g} of "
        "their difference as a residual"
    ),
    "rows on which heads agree": (
        "rows on which all heads agree give {measured:.0f} constraints for {needed:.0f} unknowns"
    ),
    "one-hot rows": "on {measured:.0f} rows all heads attend to the same key alone",
}


class NonDegeneracy(NamedTuple):
    """The conditions of sculpting, measured on a layer: ``conditions``, in the order of phases."""

    conditions: tuple[Condition, ...]

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(condition for condition in self.conditions if not condition.holds)

    def __str__(self) -> str:
        return "\n".join(map(str, self.conditions))


@single_threaded_blas()
def non_degeneracy(layer: SoftmaxAttention, X: Sequences) -> NonDegeneracy:
    """How far a known layer meets what sculpting needs, on sequences X.

    Parameters
    ----------
    layer : SoftmaxAttention
    X : array (N, n, d), list of arrays (n_i, d), or SequenceBatch
        Tokens like those from which it would be learned, and as many: two of the conditions count
        rows.  The first 4096 sequences, every length in its proportion, are looked at.

    Returns
    -------
    NonDegeneracy
        ``.conditions``: ``values do not cancel``, ``sum of values is regular``, ``heads are
        independent``, ``disagreement is seen``, ``rows on which heads agree``, ``one-hot rows``,
        each with ``.holds``, ``.measured``, ``.needed`` and ``.sentence``.  The last one may fail:
        phase 3 then rests on patterns.

    Guarantee: figures of these sequences, computed from the layer.  The thresholds are ours, and no
    theorem says that sculpting succeeds where all of them are met.

    Examples
    --------
    >>> import polyattn as pa
    >>> task = pa.data.planted_softmax(2000, 3, 6, n_heads=2, random_state=0)
    >>> report = pa.softmax.non_degeneracy(task.layer, task.X)
    >>> [condition.name for condition in report.failed]
    ['one-hot rows']
    """
    require_softmax(layer)
    blocks = [block for block in _blocks(layer, X) if block.keys.shape[1] > 1]
    attn, value = layer.attn, layer.value
    n_heads, n_dims, _ = value.shape
    S = value.sum(axis=0)
    carried = power = 0.0
    n_agree = n_one_hot = 0
    sights = []
    for block in blocks:
        p = np.stack([patterns(block, A) for A in attn])
        outputs = np.sum(p @ (block.keys @ value[:, None]), axis=0)
        means = np.broadcast_to(block.keys.mean(axis=1, keepdims=True) @ S, outputs.shape)
        carried, power = carried + float(np.vdot(means, means)), power + float(np.sum(outputs**2))
        apart = np.ptp(p, axis=0).max(axis=2)
        n_agree += int(np.count_nonzero(apart <= AGREE)) * (p.shape[3] - 1)
        alone = (p.argmax(axis=3) == p[0].argmax(axis=2)) & (p.max(axis=3) >= ONE_HOT)
        n_one_hot += int(np.count_nonzero(alone.all(axis=0)))
        sights.append(_seen_share(least_sight(block, value), _spread(block, S), block, value))
    sigma = np.linalg.svd(S, compute_uv=False)
    length = min(block.keys.shape[1] for block in blocks)
    place = min(length, len(sigma)) - 1
    regular = sigma[place] / sigma[0] if sigma[0] > 0 and len(sigma) >= length - 1 else 0.0
    sizes = np.maximum(np.linalg.norm(attn, axis=(1, 2), keepdims=True), _TINY)
    stacked = (attn / sizes).reshape(n_heads, -1)
    independent = np.linalg.svd(stacked, compute_uv=False)[-1] if n_heads <= n_dims**2 else 0.0
    measured = {
        "values do not cancel": (carried / max(power, _TINY), LEAST_CARRIED),
        "sum of values is regular": (regular, LEAST_SINGULAR),
        "heads are independent": (independent, LEAST_INDEPENDENT),
        "disagreement is seen": (np.quantile(np.concatenate(sights), QUANTILE), LEAST_SEEN),
        "rows on which heads agree": (n_agree, n_dims**2),
        "one-hot rows": (n_one_hot, ONE_HOT_PER_DIM * n_dims),
    }
    return NonDegeneracy(tuple(_condition(name, *pair) for name, pair in measured.items()))


_TINY = float(np.finfo(np.float64).tiny)

# Beside the sizes that were added up, less is rounding.
_ROUNDING = 1e-12


def least_sight(block: ExampleBlock, value: Matrix) -> Matrix:
    """sigma_min of the stacked E^T X V_i, (B,): how much of a disagreement is seen at the least.

    Zero where m (n - 1) > e: then heads can disagree unseen.
    """
    n_heads, n_examples = len(value), len(block)
    basis = sum_zero_basis(block.keys.shape[1])
    stacked = np.moveaxis(basis.T @ (block.keys @ value[:, None]), 0, 1)
    stacked = stacked.reshape(n_examples, n_heads * basis.shape[1], -1)
    if stacked.shape[1] > stacked.shape[2]:
        return np.zeros(n_examples)
    return np.asarray(np.linalg.svd(stacked, compute_uv=False)[:, -1])


def _seen_share(sight: Matrix, spread: Matrix, block: ExampleBlock, value: Matrix) -> Matrix:
    """What is seen beside the spread of X S; none where that is rounding of what cancels in it."""
    sizes = np.sqrt(np.sum(block.keys**2, axis=(1, 2))) * np.sum(np.linalg.norm(value, axis=(1, 2)))
    real = spread > _ROUNDING * sizes
    return np.where(real, sight / np.where(real, spread, 1.0), 0.0)


def _spread(block: ExampleBlock, S: Matrix) -> Matrix:
    """How far apart the rows of X S are, (B,): the root mean square of their distance."""
    outputs = block.keys @ S
    apart = outputs - outputs.mean(axis=1, keepdims=True)
    return np.asarray(np.sqrt(np.mean(np.sum(apart**2, axis=2), axis=1)))


def _blocks(layer: SoftmaxAttention, X: Sequences) -> tuple[ExampleBlock, ...]:
    """Sequences of X as blocks without hidden keys; targets are empty."""
    batch = as_batch(X)
    if batch.n_dims != layer.n_dims:
        raise InvalidInput(
            f"tokens of X have {batch.n_dims} coordinates; the layer takes {layer.n_dims}."
        )
    if batch.lengths.max() < 2:
        raise InvalidInput("all sequences have one token: there attention has no choice.")
    groups = []
    for length in np.unique(batch.lengths):
        chosen = batch.offsets[:-1][batch.lengths == length]
        keys = batch.values[chosen[:, None] + np.arange(length)].astype(np.float64)
        if layer.bias:
            keys = np.concatenate([keys, np.ones((*keys.shape[:2], 1))], axis=2)
        hidden = ~np.tri(length, dtype=bool) if layer.mode == "causal" else None
        n_rows = 1 if layer.mode == "last" else int(length)
        groups.append(ExampleBlock(keys, np.zeros((len(keys), n_rows, 1)), hidden))
    return views(Examples(tuple(groups)).first(MOST_SEQUENCES))


def _condition(name: str, measured: float, needed: float) -> Condition:
    holds = bool(measured >= needed)
    said = WORDS[name].format(measured=float(measured), needed=needed)
    sentence = said + ("." if holds else f"; {needed:g} is needed.")
    return Condition(name, holds, float(measured), float(needed), sentence)
