"""TensorLayout: the coefficients of a layout as a tensor of heads, and its linear terms beside it.

Coefficients (e, m, r) hold the folded products of all scales, then ``skip`` and ``intercept``.  The
tensor (J e, n_values, n_keys, r) has the scales one after the other, and the columns that are both
value and key first on both sides, as ``algebra`` expects them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.form.layout import Layout
from polyattn.form.pairs import fold_tensor, n_pairs, unfold_coef
from polyattn.heads.metric import Metric, ordered_pairs


@dataclass(frozen=True)
class TensorLayout:
    """The order in which heads are looked for; make it by ``TensorLayout.of``."""

    layout: Layout

    @classmethod
    def of(cls, layout: Layout) -> TensorLayout:
        """The same object for the same layout."""
        return _tensor_layout(layout)

    @property
    def n_scales(self) -> int:
        """J, the sets of heads that weigh distances differently."""
        return self.layout.n_scales

    @property
    def n_queries(self) -> int:
        """r, the columns of a query, without the constant of ``intercept``."""
        return len(self.layout.query)

    @property
    def n_product_features(self) -> int:
        """Features that heads make: they stand first."""
        return self.layout.n_products * self.n_queries

    @cached_property
    def value_order(self) -> list[int]:
        """Places among the values, shared columns first."""
        value, key = self.layout.pairs.value, set(self.layout.pairs.key)
        return sorted(range(len(value)), key=lambda at: value[at] not in key)

    @cached_property
    def key_order(self) -> list[int]:
        """Places among the keys, shared columns first, in the order of the values."""
        value, key = self.layout.pairs.value, self.layout.pairs.key
        rank = {value[at]: place for place, at in enumerate(self.value_order)}
        return sorted(range(len(key)), key=lambda at: rank.get(key[at], len(value)))

    @cached_property
    def metric(self) -> Metric:
        """The fold, with the norm of coefficients."""
        pairs = self.layout.pairs
        shared: int | None = pairs.n_shared if pairs.n_shared > 1 else 0
        if shared == pairs.n_values == pairs.n_keys:
            shared = None
        return Metric(None, shared, self.n_scales)

    def products(self, coef: NDArray) -> NDArray[np.float64]:
        """The folded products (e, J q, r) among coefficients (e, m, r')."""
        return np.asarray(coef[:, : self.layout.n_products, : self.n_queries])

    def linear(self, coef: NDArray) -> NDArray[np.float64]:
        """The linear terms among coefficients, (e, n): skip, then intercept; n may be 0."""
        return self.features(coef)[:, self.n_product_features :]

    def features(self, coef: NDArray) -> NDArray[np.float64]:
        """The coefficients of the features, (e, p)."""
        flat = coef.reshape(len(coef), -1)
        return np.asarray(flat if self.layout.kept is None else flat[:, self.layout.kept])

    def coef(self, products: NDArray, linear: NDArray) -> NDArray[np.float64]:
        """The coefficients (e, m, r') that ``products`` and ``linear`` take apart."""
        layout, n_outputs = self.layout, len(products)
        if layout.n_products == layout.n_sums:
            return products
        grid = np.zeros((n_outputs, layout.n_sums * layout.n_queries))
        flat = np.hstack([products.reshape(n_outputs, -1), linear])
        grid[:, slice(None) if layout.kept is None else layout.kept] = flat
        return grid.reshape(n_outputs, layout.n_sums, layout.n_queries)

    def terms(self, linear: NDArray) -> tuple[NDArray | None, NDArray | None]:
        """skip (r, e) and intercept (e,) from linear terms (e, n)."""
        form = self.layout.form
        skip = linear[:, : self.n_queries].T.copy() if form.skip else None
        return skip, linear[:, -1].copy() if form.intercept else None

    def tensor(self, products: NDArray) -> NDArray[np.float64]:
        """S (J e, n_values, n_keys, r) of products (e, J q, r), of least norm."""
        n_outputs, pairs = len(products), self.layout.pairs
        shape = (n_outputs, self.n_scales, len(pairs), products.shape[2])
        by_scale = products.reshape(shape).swapaxes(0, 1).reshape(-1, *shape[2:])
        tensor = unfold_coef(by_scale, pairs)
        if self._is_ordered:
            return tensor
        return tensor[:, self.value_order][:, :, self.key_order]

    def folded(self, tensor: NDArray) -> NDArray[np.float64]:
        """The products (e, J q, r) of a tensor."""
        ordered = ordered_pairs(tensor.shape[1:3], self.metric.shared)
        by_scale = fold_tensor(tensor, ordered)
        if not self._is_ordered:
            by_scale = by_scale[:, np.argsort(self._places)]
        apart = by_scale.reshape(self.n_scales, -1, *by_scale.shape[1:]).swapaxes(0, 1)
        return apart.reshape(len(apart), -1, by_scale.shape[2])

    def moments(self, gram: NDArray) -> NDArray[np.float64]:
        """Moments of the products in the order of the tensor's pairs."""
        if self._is_ordered:
            return gram
        scales = np.arange(self.n_scales)[:, None, None] * len(self.layout.pairs)
        rows = (scales + self._places[:, None]) * self.n_queries + np.arange(self.n_queries)
        return np.asarray(gram[np.ix_(rows.ravel(), rows.ravel())])

    def in_given_order(self, value: NDArray, key: NDArray) -> tuple[NDArray, NDArray]:
        """Heads (value, key) of the tensor in the order of the layout's columns."""
        if self._is_ordered:
            return value, key
        return value[:, np.argsort(self.value_order)], key[:, np.argsort(self.key_order)]

    @property
    def _is_ordered(self) -> bool:
        in_order = [
            order == list(range(len(order))) for order in (self.value_order, self.key_order)
        ]
        return all(in_order)

    @cached_property
    def _places(self) -> NDArray[np.intp]:
        """Where the tensor's pairs stand among those of the layout."""
        table = self.layout.pairs.position[self.value_order][:, self.key_order]
        return np.asarray(table[ordered_pairs(table.shape, self.metric.shared).first])


def require_layout(coef: ArrayLike, layout: Layout | None) -> tuple[NDArray, TensorLayout]:
    """Coefficients (e, m, r) as float64, finite, and their layout (None: the papers' layer)."""
    array = np.asarray(coef, dtype=np.float64)
    if layout is None:
        if array.ndim != 3 or 0 in array.shape or array.shape[1] != n_pairs(array.shape[2]):
            raise InvalidInput(
                "coef must have shape (e, q, d) with q = d(d+1)/2, as layer.coef has; "
                f"got {array.shape}. For another form give its layout, too."
            )
        layout = Layout.plain(array.shape[2])
    wanted = (layout.n_sums, layout.n_queries)
    if array.ndim != 3 or len(array) == 0 or array.shape[1:] != wanted:
        raise InvalidInput(
            f"coef must have shape (e, {wanted[0]}, {wanted[1]}), as layer.coef of this form has; "
            f"got {array.shape}."
        )
    if not np.all(np.isfinite(array)):
        raise InvalidInput("coef contains NaN or infinity; remove them before compressing.")
    return array, TensorLayout.of(layout)


@lru_cache(maxsize=64)
def _tensor_layout(layout: Layout) -> TensorLayout:
    return TensorLayout(layout)
