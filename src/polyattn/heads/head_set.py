"""Sets of heads as points of a descent: their tensor, its derivatives, and a balanced form.

The heads of a layer belong to scales (distances and weights of their own).  Their tensors stand one
after the other: (J e, n_values, n_keys, r) for J scales and e outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.heads import algebra
from polyattn.heads.metric import Metric

# From the heads (value, key) of a smaller or rounder problem to those of the given one.
Restore: TypeAlias = Callable[[NDArray, NDArray], tuple[NDArray, NDArray]]


@dataclass(frozen=True)
class HeadSet:
    """Heads whose values and keys are free.

    value : array (H, n_values, e)
    key : array (H, n_keys, r)
    counts : how many heads each scale has; they stand in this order
    shared : how many columns are value and key (see ``algebra``)
    """

    value: NDArray[np.float64]
    key: NDArray[np.float64]
    counts: tuple[int, ...]
    shared: int | None = None

    @classmethod
    def of_one_scale(cls, value: NDArray, key: NDArray, shared: int | None = None) -> HeadSet:
        """All heads have the same scale."""
        return cls(value, key, (len(value),), shared)

    @classmethod
    def joined(cls, parts: list[tuple[NDArray, NDArray]], shared: int | None) -> HeadSet:
        """The heads of each scale, one after the other."""
        value, key = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
        return cls(value, key, tuple(len(part[0]) for part in parts), shared)

    @classmethod
    def factored(cls, tensor: NDArray, metric: Metric, n_heads: int | None = None) -> HeadSet:
        """Heads of S (J e, n_values, n_keys, r) by singular values, the largest of all scales.

        metric : the fold of S, and how many scales it has
        n_heads : how many are kept; None for all that are not zero (at least one)
        """
        if metric.n_scales == 1:
            return cls.of_one_scale(*algebra.split_heads(tensor, n_heads), metric.shared)
        by_scale = tensor.reshape(metric.n_scales, -1, *tensor.shape[1:])
        parts = [algebra.split_heads(part) for part in by_scale]
        # Values and keys carry the roots of the singular values.
        sizes = [np.einsum("hca,hca->h", value, value) for value, _ in parts]
        ranked = np.concatenate(sizes)
        scales = np.repeat(np.arange(len(sizes)), [len(some) for some in sizes])
        # Of equal ones those of the first scales: never more than ``n_heads``.
        largest = np.argsort(-ranked, kind="stable")[:n_heads]
        least = ranked.max() * float(np.finfo(np.float64).eps) * max(tensor.shape)
        kept = np.bincount(scales[largest[ranked[largest] >= least]], minlength=len(sizes))
        chosen = [(v[:count], k[:count]) for (v, k), count in zip(parts, kept, strict=True)]
        return cls.joined(chosen, metric.shared)

    def __len__(self) -> int:
        return len(self.value)

    @property
    def free(self) -> HeadSet:
        """The heads as values and keys: these themselves."""
        return self

    @property
    def scales(self) -> NDArray[np.intp]:
        """The scale of each head, (H,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def parts(self) -> Iterator[slice]:
        """Where the heads of each scale stand."""
        start = 0
        for count in self.counts:
            yield slice(start, start + count)
            start += count

    def tensor(self) -> NDArray[np.float64]:
        """sym T of all scales, (J e, n_values, n_keys, r)."""
        return self._tensor(self.value, self.key)

    def balanced(self) -> HeadSet:
        """Heads of one scale orthogonal to each other, values and keys of equal norm."""
        if len(self.counts) == 1:
            value, key = algebra.balanced(self.value, self.key)
            return replace(self, value=value, key=key)
        parts = [
            algebra.balanced(self.value[at], self.key[at]) if at.stop > at.start
            else (self.value[at], self.key[at])
            for at in self.parts()
        ]  # fmt: skip
        return HeadSet.joined(parts, self.shared)

    def moved(self, step: NDArray) -> HeadSet:
        """The heads after a step (n,) of all their numbers."""
        value, key = self._parted(step)
        return replace(self, value=self.value + value, key=self.key + key)

    def change(self, step: NDArray) -> NDArray[np.float64]:
        """The derivative of the tensor along a step: sym(dV K + V dK)."""
        value, key = self._parted(step)
        if len(self.counts) == 1:
            return algebra.layer_tensor(
                np.concatenate([value, self.value]), np.concatenate([self.key, key]), self.shared
            )
        return self._tensor(value, self.key) + self._tensor(self.value, key)

    def gradient(self, pulled: NDArray) -> NDArray[np.float64]:
        """The transpose of ``change``, (n,), for a symmetric tensor."""
        if len(self.counts) == 1:
            value_part = algebra.pull_value(pulled, self.key).ravel()
            return np.concatenate([value_part, algebra.pull_key(pulled, self.value).ravel()])
        by_scale = pulled.reshape(len(self.counts), -1, *pulled.shape[1:])
        pairs = list(zip(by_scale, self.parts(), strict=True))
        value = [algebra.pull_value(part, self.key[at]).ravel() for part, at in pairs]
        key = [algebra.pull_key(part, self.value[at]).ravel() for part, at in pairs]
        return np.concatenate(value + key)

    def diagonal(self) -> NDArray[np.float64]:
        """About the squared derivatives by each number (n,), exact but for a factor 1 to 2."""
        value_scale = 0.5 * np.einsum("hbl,hbl->h", self.key, self.key)
        key_scale = 0.5 * np.einsum("hca,hca->h", self.value, self.value)
        return np.concatenate(
            [np.repeat(value_scale, self.value[0].size), np.repeat(key_scale, self.key[0].size)]
        )

    def derivatives(self) -> NDArray[np.float64]:
        """The derivatives of the tensor by each number, (n, J e, n_values, n_keys, r)."""
        if len(self.counts) == 1:
            return algebra.jacobian(self.value, self.key, self.shared)
        n_outputs = self.value.shape[2]
        shape = (self.value.shape[1], *self.key.shape[1:])
        total = np.zeros((self.value.size + self.key.size, len(self.counts), n_outputs, *shape))
        for scale, at in enumerate(self.parts()):
            if at.stop == at.start:
                continue
            value, key = self.value[at], self.key[at]
            some = algebra.jacobian(value, key, self.shared)
            by_value = slice(at.start * value[0].size, at.stop * value[0].size)
            first = self.value.size
            by_key = slice(first + at.start * key[0].size, first + at.stop * key[0].size)
            total[by_value, scale], total[by_key, scale] = some[: value.size], some[value.size :]
        return total.reshape(len(total), -1, *shape)

    def restored(self, restore: Restore) -> HeadSet:
        """The heads of the problem from which this one was made."""
        value, key = restore(self.value, self.key)
        return replace(self, value=value, key=key)

    def _tensor(self, value: NDArray, key: NDArray) -> NDArray[np.float64]:
        if len(self.counts) == 1:
            return algebra.layer_tensor(value, key, self.shared)
        parts = [algebra.layer_tensor(value[at], key[at], self.shared) for at in self.parts()]
        return np.concatenate(parts)

    def _parted(self, step: NDArray) -> tuple[NDArray, NDArray]:
        value, key = step[: self.value.size], step[self.value.size :]
        return value.reshape(self.value.shape), key.reshape(self.key.shape)
