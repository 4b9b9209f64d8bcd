"""circuits: what each head of a layer reads and writes, and which heads read what others wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop.circuits.result import Circuits
from polyattn.interop.circuits.scores import Spectra, compositions
from polyattn.model import SoftmaxAttention
from polyattn.quoting import shown


def circuits(layers: SoftmaxAttention | Sequence[SoftmaxAttention]) -> Circuits:
    """The circuits of the heads of a layer, or of layers that follow each other.

    Of a head with attn A (d, d) and value V (d, e) the circuits are the matrices themselves, W_QK =
    A and W_OV = V^T of Elhage et al., A Mathematical Framework for Transformer Circuits (2021): A
    says which tokens a query attends to, V what is written of them.

        effective rank        exp(-sum_i p_i log p_i),  p = sigma / sum(sigma)
        copying (OV), positivity (QK)
                              sum_i lambda_i / sum_i |lambda_i| over the eigenvalues
        Q-composition         ||V A'||   / (||V|| ||A'||)
        K-composition         ||A' V^T|| / (||V|| ||A'||)
        V-composition         ||V V'||   / (||V|| ||V'||)

    with Frobenius norms, V of a head of an earlier and A', V' of a head of a later layer.  Copying
    is 1 where all eigenvalues are positive, as those of a projection are: along its eigenvectors a
    token is written as it is; it is -1 where all are negative.  Compositions lie between 0 and 1:
    if the earlier matrix is turned at random, the mean of their squares is 1/d, whatever the ranks;
    ``baseline`` is its root.

    Parameters
    ----------
    layers : SoftmaxAttention, or a list of them, the first one first
        All with the same coordinates and outputs; several must write what they read (e = d).

    Left out is what a constant coordinate (``bias``) adds: the last row and column of A, by which
    tokens are attended to, or attend, whatever the other token is, and the last row of V, which
    is written whatever is attended to.  Rotary positions are left out, too: A is that of offset
    zero, A(0).  So is normalisation between layers, unless it is folded into the weights before.

    Guarantee: scores do not depend on the sizes of A and V.  They are NaN where eigenvalues are
    not resolved: where their magnitudes add up to less than 1e-5 of the singular values.
    Cost: O(H d^2 (d + e)), and O(H^2 d r^2) for compositions of heads of rank r.

    Examples
    --------
    >>> import numpy as np, polyattn as pa
    >>> copy = pa.SoftmaxAttention(np.eye(3), np.eye(3))
    >>> found = pa.interop.circuits(copy)
    >>> found
    Circuits(1 head of 1 layer, 3 -> 3)
    >>> found.copying
    array([1.])
    """
    given = [layers] if isinstance(layers, SoftmaxAttention) else _listed(layers)
    d = given[0].n_dims
    qk = np.concatenate([each.attn[:, :d, :d] for each in given])
    ov = np.concatenate([each.value[:, :d] for each in given])
    numbers = np.repeat(np.arange(len(given)), [each.n_heads for each in given])
    of_qk, of_ov = Spectra.of(qk), Spectra.of(ov)
    return Circuits(
        numbers, qk, ov, of_qk.sigma, of_ov.sigma, of_qk.eigen, of_ov.eigen,
        compositions(of_qk, of_ov, numbers), bias=any(each.bias for each in given),
        rotary=any(each.frequencies is not None for each in given),
    )  # fmt: skip


def _listed(layers: Any) -> list[SoftmaxAttention]:
    """Layers that can follow each other."""
    given = list(layers) if isinstance(layers, list | tuple) else [layers]
    for each in given:
        if not isinstance(each, SoftmaxAttention):
            raise InvalidType(
                "layers must be a SoftmaxAttention or a list of them; got "
                f"{shown(each)}. A result holds its own as .layer."
            )
    if not given:
        raise InvalidInput("layers must hold at least one layer; got an empty list.")
    sizes = {(each.n_dims, each.n_outputs) for each in given}
    if len(sizes) > 1 or (len(given) > 1 and given[0].n_dims != given[0].n_outputs):
        raise InvalidInput(
            "layers that follow each other must write as many coordinates as they read, all the "
            f"same; got {', '.join(f'{d} -> {e}' for d, e in sorted(sizes))}."
        )
    return given
