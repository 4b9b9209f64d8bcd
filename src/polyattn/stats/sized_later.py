"""Statistics whose sizes are those of the first data: nobody has to know them before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from polyattn.form.form import Form
from polyattn.sequences import Sequences, as_batch
from polyattn.targets import Targets, as_targets

if TYPE_CHECKING:
    from polyattn.stats.statistics import Statistics

S = TypeVar("S", bound="Statistics")


def sized_later(kind: type[S], form: Form) -> S:
    """Statistics of this kind and form that wait for their first ``update``.

    Guarantee: from then on an object of ``kind``, equal to one that was made with the sizes of
    these data.  Before, ``n_rows`` is 0, and there is nothing else to ask for.
    """
    waiting: Any = type(kind.__name__, (_Waiting, kind), {"_kind": kind, "_wanted": form})
    made: S = waiting.__new__(waiting)
    return made


class _Waiting:
    """What stands before a kind of statistics until the sizes are known."""

    _kind: type[Statistics]
    _wanted: Form
    n_rows = 0

    def update(self, X: Sequences, Y: Targets | None = None, *others: Any, **named: Any) -> Any:
        """Take the sizes of X and Y, and add them; returns itself."""
        batch = as_batch(X)
        n_outputs = 0 if Y is None else as_targets(Y, batch, self._wanted.mode).shape[1]
        made = self._kind(batch.n_dims, n_outputs, form=self._wanted)
        made.update(batch, Y, *others, **named)
        # Only once everything was let in: a refused update changes nothing.
        self.__class__ = self._kind  # type: ignore[assignment]
        vars(self).update(vars(made))
        return self

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"these {self._kind.__name__} have no {name} yet: their sizes come with the first "
            "update(X, Y)."
        )

    def __repr__(self) -> str:
        return f"{self._kind.__name__}(nothing added yet, {self._wanted})"
