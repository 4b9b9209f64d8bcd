"""Which fits of token ids stay sparse."""

from __future__ import annotations

from typing import TypeGuard

from polyattn.errors import InvalidInput
from polyattn.features.symbol_counts import DENSE_SYMBOLS, MOST_FEATURES, refusal, symbols_of
from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.sequences import SequenceBatch


def stays_sparse(X: object, form: Form, solver: str, **beside: object) -> TypeGuard[SequenceBatch]:
    """Whether these data are fitted by counts of symbols.

    With ``solver="one_hot"`` always; with ``"auto"`` where symbols are many.
    beside : arguments of the caller that only fits of dense tokens know; None: not given
    """
    ids = symbols_of(X) if isinstance(X, SequenceBatch) else None
    if ids is None:
        if solver == "one_hot":
            raise InvalidInput(
                "solver='one_hot' needs token ids: give SequenceBatch.from_ids(ids, n_symbols)."
            )
        return False
    given = [name for name, value in beside.items() if value is not None]
    why = refusal(form) or (f"fits of token ids know no {given[0]}." if given else None)
    if solver == "one_hot" and why is not None:
        raise InvalidInput(f"{why} Another solver takes the ids as dense tokens.")
    if solver == "one_hot":
        return True
    if solver != "auto" or ids.n_symbols <= DENSE_SYMBOLS:
        return False
    n_features = Layout.of(form, ids.n_symbols).n_features
    if why is not None and n_features > MOST_FEATURES:
        raise InvalidInput(
            f"{why} As dense tokens {ids.n_symbols:,} symbols have {n_features:,} features, too "
            "many for that."
        )
    return why is None
