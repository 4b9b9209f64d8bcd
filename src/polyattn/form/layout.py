"""Layout: a form for tokens of given width – which columns are seen, and which features there are.

A row of the regression is (S, u): S holds the folded products of values and keys, one set for
each scale, and u the query.  Its features are the products S ⊗ u, p of them:

    skip        S gains a constant 1, so that u itself is among the features
    intercept   S and u gain a constant 1, of which only the product 1 is a feature

Solvers, moments and certificates read sizes, weights and the features that are kept from here, and
never ask what the attention looks like.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.form.columns import Columns
from polyattn.form.form import Form, plain_form
from polyattn.form.pairs import FoldedPairs, fold_heads


@dataclass(frozen=True)
class Layout:
    """A form for tokens of ``n_dims`` coordinates that attend to themselves or to a context.

    Make it by ``Layout.of``, which gives the same object for the same arguments.
    """

    form: Form
    n_dims: int
    n_context_dims: int | None = None

    @classmethod
    def of(cls, form: Form, n_dims: int, n_context_dims: int | None = None) -> Layout:
        """The layout of a form; ``n_context_dims`` are the coordinates of another sequence."""
        return _layout(form, n_dims, n_context_dims)

    @classmethod
    def plain(cls, n_dims: int, mode: str = "last", bias: bool = False) -> Layout:
        """That of the papers' layer."""
        return _layout(plain_form(mode, bias), n_dims, None)

    def __post_init__(self) -> None:
        form = self.form
        if self.n_context_dims is not None and form.mode != "causal":
            by_distance = [name for name in ("window", "decay", "lags") if getattr(form, name)]
            if by_distance or not form.include_query:
                name = by_distance[0] if by_distance else "include_query=False"
                raise InvalidInput(
                    f"{name} speaks of the place of the query among the tokens attended to, and "
                    f"in mode {form.mode!r} it has none in a context; use mode='causal', where "
                    "tokens and context are aligned."
                )
        # Wrong maps are refused here, and not at first use.
        _ = self.pairs, self.query

    @property
    def columns(self) -> Columns:
        """The columns that are seen of the tokens: queries, and keys and values without context."""
        return self._columns[0]

    @property
    def pair_columns(self) -> Columns:
        """The columns of which keys and values are made: those of the context, where there is."""
        return self._columns[-1]

    @cached_property
    def n_columns(self) -> int:
        """All columns that are seen: of the tokens, then those of the context."""
        return sum(each.n_columns for each in self._columns)

    @property
    def is_plain(self) -> bool:
        """Whether this is the layer of the papers."""
        return self.form.is_plain and self.n_context_dims is None

    @property
    def has_constant(self) -> bool:
        """Whether a constant is added to S: by ``skip`` or ``intercept``."""
        return self.form.skip or self.form.intercept

    @cached_property
    def query(self) -> NDArray[np.intp]:
        """Which ``columns`` are the query, (r,), without the constant of ``intercept``."""
        return self.columns.places("query")

    @cached_property
    def query_is_all_columns(self) -> bool:
        """Whether the query is made of all ``columns``, in their order."""
        return np.array_equal(self.query, np.arange(self.columns.n_columns))

    @cached_property
    def pairs(self) -> FoldedPairs:
        """The products of ``pair_columns`` that S holds for each scale."""
        value, key = (self.pair_columns.places(name).tolist() for name in ("value", "key"))
        return FoldedPairs.of(tuple(value), tuple(key))

    @cached_property
    def pair_places(self) -> tuple[NDArray[np.intp] | None, NDArray[np.intp] | None]:
        """Which ``pair_columns`` are values, and keys; None where they are all, in order."""
        every = tuple(range(self.pair_columns.n_columns))
        value, key = (
            None if places == every else np.array(places, dtype=np.intp)
            for places in (self.pairs.value, self.pairs.key)
        )
        return value, key

    @cached_property
    def n_scales(self) -> int:
        """Sets of heads that weigh distances differently."""
        return len(self.form.scales)

    @cached_property
    def n_products(self) -> int:
        """Entries of S without a constant: the pairs of all scales."""
        return self.n_scales * len(self.pairs)

    @cached_property
    def n_sums(self) -> int:
        """m, the entries of S, the constant of ``skip`` or ``intercept`` included."""
        return self.n_products + self.has_constant

    @cached_property
    def n_queries(self) -> int:
        """r, the entries of u, the constant of ``intercept`` included."""
        return len(self.query) + self.form.intercept

    @property
    def block(self) -> tuple[int, int]:
        """How many sums and queries have all their products among the features.

        With ``intercept`` the product of the last sum and the last query is a feature beside them.
        """
        if not self.form.intercept:
            return self.n_sums, self.n_queries
        return self.n_products + self.form.skip, self.n_queries - 1

    @cached_property
    def n_features(self) -> int:
        """p, the number of features."""
        return self.n_sums * self.n_queries if self.kept is None else len(self.kept)

    @cached_property
    def kept(self) -> NDArray[np.intp] | None:
        """Which of the m r products S ⊗ u are features, in order; None: all of them."""
        if not self.form.intercept:
            return None
        grid, (n_sums, n_queries) = np.zeros((self.n_sums, self.n_queries), bool), self.block
        grid[:n_sums, :n_queries] = True
        grid[-1, -1] = True
        return np.flatnonzero(grid)

    @cached_property
    def norm_weights(self) -> NDArray[np.float64]:
        """s (m,): the norm of a layer is ||s * P||_F, see ``FoldedPairs.norm_weights``."""
        constant = np.ones(self.n_sums - self.n_products)
        weights = np.concatenate([np.tile(self.pairs.norm_weights, self.n_scales), constant])
        weights.setflags(write=False)
        return weights

    @cached_property
    def feature_weights(self) -> NDArray[np.float64]:
        """``norm_weights`` of each feature, (p,)."""
        weights = np.repeat(self.norm_weights, self.n_queries)
        weights = weights if self.kept is None else weights[self.kept]
        weights.setflags(write=False)
        return weights

    def feature_sizes(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Products (m, r) of the sizes of all columns (see ``Rows``); the largest is 1."""
        largest = float(columns.max(initial=0.0)) or 1.0
        sizes, unit = columns / largest, 1.0 / largest if self.has_constant else 1.0
        own = sizes[: self.columns.n_columns]
        others = sizes[-self.pair_columns.n_columns :]
        at_value, at_key = self.pairs.first
        value, key = np.array(self.pairs.value), np.array(self.pairs.key)
        products = np.tile(others[value[at_value]] * others[key[at_key]], self.n_scales)
        summaries = np.append(products, [unit**2] * (self.n_sums - self.n_products))
        queries = np.append(own[self.query], [unit] * self.form.intercept)
        grid = summaries[:, None] * queries
        return grid / (grid.max(initial=0.0) or 1.0)

    def select(self, products: NDArray) -> NDArray:
        """The features (p, ...) among all products (m r, ...)."""
        return products if self.kept is None else products[self.kept]

    def as_coef(self, theta: NDArray) -> NDArray[np.float64]:
        """Folded coefficients P (e, m, r) from theta (p, e) = s P; zero where no feature is."""
        folded = theta / self.feature_weights[:, None]
        if self.kept is not None:
            grid = np.zeros((self.n_sums * self.n_queries, theta.shape[1]))
            grid[self.kept] = folded
            folded = grid
        return np.ascontiguousarray(folded.T).reshape(-1, self.n_sums, self.n_queries)

    def as_theta(self, coef: NDArray) -> NDArray[np.float64]:
        """theta (p, e) = s P from folded coefficients P (e, m, r): the inverse of ``as_coef``."""
        flat = coef.reshape(len(coef), -1).T
        flat = flat if self.kept is None else flat[self.kept]
        return np.ascontiguousarray(flat * self.feature_weights[:, None])

    def coef_of(
        self,
        attn: NDArray,
        value: NDArray,
        head_scales: NDArray | None = None,
        skip: NDArray | None = None,
        intercept: NDArray | None = None,
    ) -> NDArray[np.float64]:
        """Folded coefficients (e, m, r) of heads (``head_scales=None``: all of the first scale)."""
        coef = np.zeros((value.shape[2], self.n_sums, self.n_queries))
        n_pairs, n_queries = len(self.pairs), len(self.query)
        scales = np.zeros(len(attn)) if head_scales is None else head_scales
        for scale in range(self.n_scales):
            own, rows = scales == scale, slice(scale * n_pairs, (scale + 1) * n_pairs)
            if np.any(own):
                coef[:, rows, :n_queries] = fold_heads(attn[own], value[own], self.pairs)
        if skip is not None:
            coef[:, self.n_products, :n_queries] = skip.T
        if intercept is not None:
            coef[:, -1, -1] = intercept
        return coef

    @cached_property
    def _columns(self) -> tuple[Columns, ...]:
        form = self.form
        roles = {"query": form.query, "key": form.key, "value": form.value}
        if self.n_context_dims is None:
            return (Columns.of(self.n_dims, roles, form.bias),)
        query = {"query": roles.pop("query")}
        return (
            Columns.of(self.n_dims, query, form.bias),
            Columns.of(self.n_context_dims, roles, form.bias),
        )


@lru_cache(maxsize=64)
def _layout(form: Form, n_dims: int, n_context_dims: int | None) -> Layout:
    return Layout(form, n_dims, n_context_dims)
