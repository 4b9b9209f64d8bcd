"""OfLayout: what everything that belongs to one layout says of it."""

from __future__ import annotations

from polyattn.form.form import Form
from polyattn.form.layout import Layout


class OfLayout:
    """The form and the sizes behind rows, sums and results with a ``layout``."""

    layout: Layout

    @property
    def form(self) -> Form:
        """The form of the layer."""
        return self.layout.form

    @property
    def mode(self) -> str:
        """Which positions are predicted."""
        return self.layout.form.mode

    @property
    def bias(self) -> bool:
        """Whether a constant is appended to queries, keys and values."""
        return self.layout.form.bias

    @property
    def n_dims(self) -> int:
        """Coordinates per token as given."""
        return self.layout.n_dims

    @property
    def n_context_dims(self) -> int | None:
        """Coordinates per token of the context; None where tokens attend to themselves."""
        return self.layout.n_context_dims

    @property
    def n_features(self) -> int:
        """p, the number of features."""
        return self.layout.n_features
