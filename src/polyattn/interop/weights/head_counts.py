"""How many heads a layer has, and their weights one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polyattn.errors import InvalidInput, require_integer
from polyattn.interop.low_rank import Matrix
from polyattn.interop.weights.choosing import Place
from polyattn.interop.weights.layouts import Sides
from polyattn.interop.weights.settings import HEADS, KEY_VALUE_HEADS, WIDTHS, setting
from polyattn.quoting import shown


@dataclass(frozen=True)
class HeadCounts:
    """The heads of queries, those of keys and values, and the width of one."""

    n_heads: int
    n_kv_heads: int
    head_dim: int

    @classmethod
    def of(
        cls,
        sides: Sides,
        place: Place,
        config: dict[str, Any] | None,
        n_heads: int | None,
        n_kv_heads: int | None,
    ) -> HeadCounts:
        """Numbers that were given, or that the configuration has, checked against the shapes."""
        _require_shapes(sides, place)
        width, of_keys = sides["W_Q"].shape[1], sides["W_K"].shape[1]
        n_heads = _agreed("n_heads", n_heads, setting(config, HEADS))
        if n_heads is None:
            raise InvalidInput(
                f"n_heads must be given: no configuration beside {place.name or 'the weights'!r} "
                f"says it. By the shapes W_Q {sides['W_Q'].shape} and W_K {sides['W_K'].shape} it "
                f"is one of {_fitting(width, of_keys)}."
            )
        head_dim, rest = divmod(width, n_heads)
        if rest or of_keys % head_dim or n_heads % (of_keys // head_dim):
            raise InvalidInput(
                f"n_heads = {n_heads} does not fit W_Q {sides['W_Q'].shape} and W_K "
                f"{sides['W_K'].shape}: these have heads of one width side by side, so that it is "
                f"one of {_fitting(width, of_keys)}."
            )
        expected = setting(config, WIDTHS)
        if expected is not None and expected != head_dim:
            raise InvalidInput(
                f"the configuration has head_dim = {expected}, but {n_heads} heads of W_Q "
                f"{sides['W_Q'].shape} have {head_dim} coordinates; give n_heads, and config "
                "without it."
            )
        there = of_keys // head_dim
        asked = _agreed("n_kv_heads", n_kv_heads, setting(config, KEY_VALUE_HEADS))
        if asked is not None and asked != there:
            raise InvalidInput(
                f"n_kv_heads = {asked}, but W_K {sides['W_K'].shape} holds {there} heads of "
                f"{head_dim} coordinates."
            )
        return cls(n_heads, there, head_dim)

    def split(self, sides: Sides) -> dict[str, Matrix]:
        """W_Q (H, d, head_dim), ..., with keys and values repeated for heads that share them."""
        found = {}
        for name, each in sides.items():
            count = self.n_kv_heads if name[-1] in "KV" else self.n_heads
            if name == "b_O":
                found[name] = each
            elif name == "W_O":
                found[name] = each.reshape(count, self.head_dim, -1)
            else:
                heads = each.reshape(*each.shape[:-1], count, self.head_dim)
                found[name] = np.moveaxis(heads, -2, 0)
            if count < self.n_heads:
                found[name] = np.repeat(found[name], self.n_heads // count, axis=0)
        return {name: np.ascontiguousarray(each) for name, each in found.items()}


def _require_shapes(sides: Sides, place: Place) -> None:
    """Refuse arrays that are not those of one layer of self-attention."""
    shapes = ", ".join(f"{name} {each.shape}" for name, each in sides.items())
    where = f"in the terms x W, layer {place.name!r} has {shapes}"
    W_Q, W_K, W_V, W_O = (sides[f"W_{role}"] for role in "QKVO")
    if any(each.ndim != 2 or 0 in each.shape for each in (W_Q, W_K, W_V, W_O)):
        raise InvalidInput(f"W_Q, W_K, W_V and W_O must be matrices; {where}.")
    if not len(W_Q) == len(W_K) == len(W_V):
        raise InvalidInput(
            "queries, keys and values must be of tokens of one width (no kdim or vdim of their "
            f"own): they attend to another sequence otherwise; {where}."
        )
    if W_K.shape != W_V.shape or len(W_O) != W_Q.shape[1]:
        raise InvalidInput(
            f"keys and values must have one width, and W_O must take that of W_Q; {where}."
        )
    if W_K.shape != W_Q.shape and not place.layout.grouped:
        raise InvalidInput(f"layout {place.layout.name!r} has as many keys as queries; {where}.")
    for name, each in sides.items():
        if name[0] == "b" and each.shape != sides[f"W_{name[-1]}"].shape[1:]:
            raise InvalidInput(f"{name} must have one number for each column; {where}.")


def _agreed(name: str, given: int | None, configured: int | None) -> int | None:
    """The number that was given, or that of the configuration; both must agree."""
    if given is None:
        return configured
    require_integer(name, given)
    if configured is not None and configured != given:
        raise InvalidInput(
            f"{name} = {shown(given)}, but the configuration says {configured}; leave one out "
            f"({name}=None, or config without it)."
        )
    return int(given)


def _fitting(width: int, of_keys: int) -> str:
    """The numbers of heads that shapes allow."""
    numbers = [
        count
        for count in range(1, width + 1)
        if width % count == 0
        and of_keys % (width // count) == 0
        and count % (of_keys * count // width) == 0
    ]
    shown_ones = ", ".join(map(str, numbers[:40]))
    return shown_ones + (", ..." if len(numbers) > 40 else "")
