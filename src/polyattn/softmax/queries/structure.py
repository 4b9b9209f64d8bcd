"""What lies around the attention of a black box: as it was asked for, and as it was found.

    F(X) = [X +] attention([norm](X)),      with rotary positions or without

``Surroundings`` holds both, and lets the black box answer for what is inside: a function of the
tokens that attention sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, PolyattnError, require_choice
from polyattn.model.softmax import SoftmaxAttention
from polyattn.softmax.queries.normalised import (
    NORMALISATIONS,
    Coordinates,
    Normalisation,
    find_normalisation,
)
from polyattn.softmax.queries.oracle import Oracle
from polyattn.softmax.queries.outcomes import Stopped


@dataclass(frozen=True)
class Surroundings:
    """What lies around attention; "auto" where it is still to be found.

    residual : "auto", or whether the input is added
    normalisation : "auto", one of NORMALISATIONS, or None; ``found`` holds it with its eps, which
        ``eps_error`` is the relative standard error of
    rotary : "auto", or whether positions turn queries and keys; ``seen``, whether answers showed it
    """

    residual: bool | str = "auto"
    normalisation: str | None = "auto"
    rotary: bool | str = "auto"
    found: Normalisation | None = None
    eps_error: float = 0.0
    seen: bool = False

    @classmethod
    def required(cls, residual: Any, normalisation: Any, rotary: Any) -> Surroundings:
        """The arguments of ``learn_from_queries``, checked."""
        flags = {"residual": residual, "rotary": False if rotary is None else rotary}
        for name, given in flags.items():
            if not isinstance(given, bool | np.bool_) and given != "auto":
                other = "None" if name == "rotary" else "False"
                raise InvalidInput(f'{name} must be "auto", True or {other}; got {given!r}.')
            flags[name] = given if isinstance(given, str) else bool(given)
        if normalisation is not None:
            require_choice("normalisation", normalisation, ("auto", *NORMALISATIONS))
        return cls(flags["residual"], normalisation, flags["rotary"])

    @property
    def pending(self) -> bool:
        """Whether a normalisation was given whose eps is not known yet."""
        return self.normalisation in NORMALISATIONS and self.found is None

    @property
    def adds_input(self) -> bool:
        """Whether the input is added, as far as that is known."""
        return self.residual is True

    @property
    def turns(self) -> bool:
        """Whether positions turn queries and keys, as far as that is known."""
        return self.rotary is True

    def settle(self, oracle: Oracle, n_dims: int) -> None:
        """Let ``oracle`` answer for the attention alone, as far as known, of tokens (d,)."""
        inside = None if self.found is None else Coordinates(self.found)
        oracle.outside = None if inside is None else inside.tokens
        oracle.adds_input = self.adds_input
        oracle.n_dims = n_dims if inside is None else inside.n_dims
        oracle.token_limit = np.inf if inside is None else inside.largest
        oracle.token_exponent, oracle.answer_exponent = 0, None

    def outside(self, layer: SoftmaxAttention) -> SoftmaxAttention:
        """The layer that acts on normalised tokens, for one in coordinates of these."""
        return layer if self.found is None else Coordinates(self.found).of_normalised(layer)

    def outside_errors(
        self, attn: NDArray, value: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Standard errors of ``outside``, for those of a layer in coordinates of its tokens."""
        if self.found is None:
            return attn, value
        bias = value.shape[1] > Coordinates(self.found).n_dims
        # Entries are taken for independent: variances add up.
        squares = Coordinates(self.found).outwards(bias) ** 2
        return np.sqrt(squares @ attn**2 @ squares.T), np.sqrt(squares @ value**2)


class Restructured(PolyattnError):
    """Something lies around the attention that was not known: learning begins anew with it."""

    def __init__(self, structure: Surroundings, **found: Any) -> None:
        super().__init__(", ".join(map(str, found)))
        self.structure = replace(structure, **found)


def look_for_normalisation(oracle: Oracle, structure: Surroundings) -> None:
    """Raise Restructured where tokens are normalised before attention; return where they are not.

    Raises Stopped where that contradicts what was asked for.
    """
    if structure.found is not None:
        return
    # Whether the input is added is found anew.
    added, oracle.adds_input = oracle.adds_input, False
    try:
        prepared = find_normalisation(oracle, structure.normalisation or "auto")
    except Stopped as stop:
        # Tokens that it does not answer say nothing about why those before were answered so.
        if stop.outcome.name != "oracle_failed" or structure.pending:
            raise
        prepared = None
    finally:
        oracle.adds_input = added
    if prepared is None:
        if structure.pending:
            raise Stopped(
                "other_structure",
                f"Tokens are not normalised by {structure.normalisation!r}: answers to one token "
                "change with its size in another way.",
                "Leave normalisation out, or call again with normalisation=None.",
            )
        return
    kind, residual = prepared.normalisation.kind, prepared.residual
    if structure.normalisation is None:
        raise Stopped(
            "other_structure",
            f"Tokens are normalised before attention, by {kind!r}: answers to one large token do "
            "not change with its size" + (", but for the token itself." if residual else "."),
            f"Leave normalisation out, or call again with normalisation={kind!r}.",
        )
    if structure.residual not in ("auto", residual):
        raise Stopped(
            "other_structure",
            f"The oracle {'adds' if residual else 'does not add'} its input to attention of "
            f"normalised tokens: there is {'a' if residual else 'no'} residual connection.",
            f"Leave residual out, or call again with residual={residual}.",
        )
    raise Restructured(
        structure,
        found=prepared.normalisation,
        eps_error=prepared.eps_error,
        residual=residual,
    )
