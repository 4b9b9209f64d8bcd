"""Projections: the heads of a layer as the W_Q, W_K, W_V, W_O of transformers.

attn and value of a head are products of projections,

    A_h = [W_Q; b_Q] [W_K; b_K]^T / scale,      V_h = [W_V; b_V] W_O,

where the biases are the rows of the constant that ``bias`` appends.  With rotary positions queries
and keys are turned before they meet.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.interop.from_projections import Layer, from_projections
from polyattn.interop.low_rank import Matrix
from polyattn.quoting import counted


@dataclass(frozen=True, eq=False, repr=False)
class Projections:
    """The heads of a layer as projections of tokens, and what they compute.

    With rows q_t = x_t W_Q[h] + b_Q[h], k_s = z_s W_K[h] + b_K[h], v_s = z_s W_V[h] + b_V[h], and
    s running over the tokens that t attends to,

        softmax    y_t = sum_h sum_s  softmax_s(q_t . k_s / scale)      v_s W_O[h]  +  b_O
        linear     y_t = sum_h sum_s  w_h(t, s) (q_t . k_s / scale)     v_s W_O[h]  +  b_O

    Both x and z are the tokens, and w = 1, unless a linear layer has a ``form`` or a context that
    says otherwise; forms with ``skip`` add x_t W_skip.  With ``rotary`` coordinates i and
    i + head_dim/2 of q_t and k_t are turned by the angle t * rotary[i] first.

    Attributes
    ----------
    W_Q, W_K : arrays (H', d, head_dim)
        Of a form: as many rows as it sees numbers of a query, or of a key.
    W_V : array (H', d, value_dim)
    W_O : array (H', value_dim, e)
    b_Q, b_K, b_V, b_O : arrays (H', head_dim), (H', head_dim), (H', value_dim), (e,), or None
        None: there is none.
    scale : float
        What products of queries and keys are divided by.
    kind : "linear" | "softmax"
    mode : which positions are predicted, as for layers
    heads : integer array (H',)
        Of which head of the layer each is a part.
    change : float
        The largest relative change of an ``attn`` or ``value``, by what did not fit.
    layout : the form of a linear layer, and the coordinates of its tokens; None for softmax
    head_scales : integer array (H',)
        Which scale of the form w_h is, for linear layers.
    W_skip : array (d, e), or None
    rotary : array (head_dim / 2,), or None
        The frequencies of rotary positions, of softmax layers that have them.
    """

    W_Q: Matrix
    W_K: Matrix
    W_V: Matrix
    W_O: Matrix
    b_Q: Matrix | None
    b_K: Matrix | None
    b_V: Matrix | None
    b_O: Matrix | None
    scale: float
    kind: str
    mode: str
    heads: NDArray[np.intp]
    change: float
    layout: Layout | None = None
    head_scales: NDArray[np.int64] | None = None
    W_skip: Matrix | None = None
    rotary: Matrix | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            if isinstance(array := getattr(self, each.name), np.ndarray):
                array.setflags(write=False)

    @property
    def n_heads(self) -> int:
        """H', the number of heads."""
        return len(self.W_Q)

    @property
    def head_dim(self) -> int:
        """The coordinates of a query and of a key."""
        return self.W_Q.shape[2]

    @property
    def value_dim(self) -> int:
        """The coordinates of a value."""
        return self.W_V.shape[2]

    @property
    def form(self) -> Form | None:
        """What a linear layer predicts, attends to and sees of tokens; None for softmax."""
        return None if self.layout is None else self.layout.form

    def to_layer(self) -> Layer:
        """The layer that computes this."""
        beside: dict[str, Any] = {"mode": self.mode, "rotary": self.rotary}
        if self.layout is not None:
            beside = {
                "form": self.layout.form, "n_dims": self.layout.n_dims,
                "n_context_dims": self.layout.n_context_dims, "head_scales": self.head_scales,
                "W_skip": self.W_skip,
            }  # fmt: skip
        return from_projections(
            self.W_Q, self.W_K, self.W_V, self.W_O, self.b_Q, self.b_K, self.b_V, self.b_O,
            kind=self.kind, scale=self.scale, **beside,
        )  # fmt: skip

    def side_by_side(self) -> dict[str, Matrix]:
        """The arrays with the heads in one axis: W_Q (d, H' head_dim), W_O (H' value_dim, e), ...

        A ``torch.nn.Linear`` holds the transpose of such a matrix.  Biases that are None are
        left out.
        """
        arrays = {
            name: getattr(self, name).transpose(1, 0, 2).reshape(getattr(self, name).shape[1], -1)
            for name in ("W_Q", "W_K", "W_V")
        }
        arrays["W_O"] = self.W_O.reshape(-1, self.W_O.shape[2])
        biases = {name: getattr(self, name) for name in ("b_Q", "b_K", "b_V", "b_O")}
        return arrays | {name: each.ravel() for name, each in biases.items() if each is not None}

    @property
    def sentence(self) -> str:
        """What was made of how many heads, in words."""
        given = len(set(self.heads.tolist()))
        turned = "" if self.rotary is None else "turned "
        return (
            f"{counted(given, f'{self.kind} head')} as {counted(self.n_heads, 'head')} with "
            f"{turned}queries and keys of {counted(self.head_dim, 'coordinate')} and values of "
            f"{self.value_dim}; attn and value changed by at most {self.change:.1e} of their norms."
        )

    def __repr__(self) -> str:
        sizes = f"head_dim={self.head_dim}, value_dim={self.value_dim}, scale={self.scale:g}"
        rotary = "" if self.rotary is None else ", rotary"
        return f"Projections({self.kind}, {counted(self.n_heads, 'head')}, {sizes}{rotary})"

    def __str__(self) -> str:
        return self.sentence
