"""The compiler: validate, then lower every term to heads and assemble them."""

from __future__ import annotations

from polyattn.errors import InvalidType
from polyattn.programs.compiled import Compiled
from polyattn.programs.language.program import Program
from polyattn.programs.language.validate import validate


def compile(program: Program) -> Compiled:  # noqa: A001 - programs are compiled; P.compile says it
    """One layer of linear attention that computes a program, token after token.

    Parameters
    ----------
    program : Program
        Of the library, or your own.

    Returns
    -------
    Compiled
        ``run`` runs it; ``layer`` is the LinearAttention in mode ``last``.

    Raises ProgramRefused with every reason if one layer cannot compute the program.

    Guarantee: ``run``, ``run_batch`` and ``decode`` give the tokens that exact sums of what the
    terms write give: counts and weights of any size, none is rounded (a token holds at most
    2^63 - 1; beyond that OutOfRange).  ``layer`` computes in float64: its outputs are exact while
    u w n m^3 <= 2^53, for n tokens that hold at most m, weights that add up to at most w for an
    output, and their common denominator u.  Under the assumptions that instructions state, and
    that the interpreter checks, that is what the program means.
    Cost: the number of nonzero entries of the heads.
    """
    if not isinstance(program, Program):
        raise InvalidType(f"compile takes a Program; got {type(program).__name__}.")
    validate(program)
    return Compiled(program.schema, tuple(program.terms()), program.name)
