"""Heads whose attention matrices have a limited rank: A_h = Q_h K_h^T with Q_h, K_h of k columns.

Mixtures of such heads are not such heads, so they cannot be balanced by mixing as free ones are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polyattn.heads.head_set import HeadSet, Restore


@dataclass(frozen=True)
class LowRankHeads:
    """Heads with key_h = left_h right_h^T.

    value : array (H, n_values, e)
    left : array (H, n_keys, k)
    right : array (H, r, k)
    counts, shared : as for ``HeadSet``
    """

    value: NDArray[np.float64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    counts: tuple[int, ...]
    shared: int | None = None

    @classmethod
    def nearest(cls, heads: HeadSet, rank: int) -> LowRankHeads:
        """Keys cut to their ``rank`` largest singular values, values and keys of equal norm."""
        left, sigma, right = np.linalg.svd(heads.key, full_matrices=False)
        root = np.sqrt(sigma[:, None, :rank])
        norms = np.linalg.norm(sigma[:, :rank], axis=1), np.linalg.norm(heads.value, axis=(1, 2))
        ratio = np.divide(*norms[::-1], out=np.ones(len(sigma)), where=norms[0] > 0)
        # A head of which either half is zero stays so; both halves must not be.
        shift = np.sqrt(np.where(ratio > 0, ratio, 1.0))[:, None, None]
        more = np.sqrt(shift)
        return cls(
            heads.value / shift,
            left[:, :, :rank] * root * more,
            right[:, :rank].transpose(0, 2, 1) * root * more,
            heads.counts,
            heads.shared,
        )

    def __len__(self) -> int:
        return len(self.value)

    @property
    def free(self) -> HeadSet:
        key = self.left @ self.right.transpose(0, 2, 1)
        return HeadSet(self.value, key, self.counts, self.shared)

    def tensor(self) -> NDArray[np.float64]:
        """sym T of all scales."""
        return self.free.tensor()

    def balanced(self) -> LowRankHeads:
        return LowRankHeads.nearest(self.free, self.left.shape[2])

    def moved(self, step: NDArray) -> LowRankHeads:
        value, left, right = self._parted(step)
        return replace(
            self, value=self.value + value, left=self.left + left, right=self.right + right
        )

    def change(self, step: NDArray) -> NDArray[np.float64]:
        value, left, right = self._parted(step)
        key = left @ self.right.transpose(0, 2, 1) + self.left @ right.transpose(0, 2, 1)
        return self.free.change(np.concatenate([value.ravel(), key.ravel()]))

    def gradient(self, pulled: NDArray) -> NDArray[np.float64]:
        heads = self.free
        flat = heads.gradient(pulled)
        key = flat[heads.value.size :].reshape(heads.key.shape)
        left, right = key @ self.right, key.transpose(0, 2, 1) @ self.left
        return np.concatenate([flat[: heads.value.size], left.ravel(), right.ravel()])

    def diagonal(self) -> NDArray[np.float64]:
        """As for free heads, times the squares of the other factor of the key."""
        heads = self.free
        flat = heads.diagonal()
        of_key = flat[heads.value.size :: heads.key[0].size][:, None, None]
        sides = self.left, self.right
        squares = [np.einsum("hik,hik->hk", side, side)[:, None] for side in sides[::-1]]
        parts = [
            np.broadcast_to(of_key * square, side.shape).ravel()
            for square, side in zip(squares, sides, strict=True)
        ]
        return np.concatenate([flat[: heads.value.size], *parts])

    def derivatives(self) -> NDArray[np.float64]:
        heads = self.free
        whole = heads.derivatives()
        by_value, by_key = whole[: heads.value.size], whole[heads.value.size :]
        shape = whole.shape[1:]
        by_key = by_key.reshape(*heads.key.shape, -1)
        left = np.einsum("hblx,hlk->hbkx", by_key, self.right).reshape(-1, *shape)
        right = np.einsum("hblx,hbk->hlkx", by_key, self.left).reshape(-1, *shape)
        return np.concatenate([by_value, left, right])

    def restored(self, restore: Restore) -> LowRankHeads:
        return LowRankHeads.nearest(self.free.restored(restore), self.left.shape[2])

    def _parted(self, step: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        first = self.value.size
        second = first + self.left.size
        return (
            step[:first].reshape(self.value.shape),
            step[first:second].reshape(self.left.shape),
            step[second:].reshape(self.right.shape),
        )
