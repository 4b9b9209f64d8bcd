"""compress: coefficients -> as few heads as compute the same function."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.heads.algebra import split_heads
from polyattn.heads.bounds import generic_heads, least_heads
from polyattn.heads.compression import Compression, Target
from polyattn.heads.descent import Frobenius, Patience
from polyattn.heads.factor import factor
from polyattn.heads.reduce import reduce
from polyattn.heads.search import Trial, descents, fewest, first_within
from polyattn.parallel import single_threaded_blas

# The reduction to a core may lose a tenth of the tolerance, the descent the rest.
SHARE = 0.1
# With so many times the heads that parameters count for, any function is found easily.
EASE = 1.35
# Multiply-adds after which no further number of heads is tried.
TOTAL_WORK = 4e10


@single_threaded_blas()
def compress(coef: ArrayLike, tolerance: float = 1e-10, random_state: int = 0) -> Compression:
    """The same function with the fewest heads that were found.

    Looks for V, A with  ||S - sym T||_F <= tolerance ||S||_F,  T = sum_h V_h (x) A_h:  the part
    of T that is antisymmetric in (j,k) changes nothing and is chosen so that few heads suffice.

    Parameters
    ----------
    coef : array (e, q, d)
        Folded coefficients, as ``layer.coef``.
    tolerance : float, 0 < tolerance < 1
        How exactly the coefficients are to be met; coefficients from a fit are themselves only
        known to about 1e-12 .. 1e-9.
    random_state : int
        Seed of the starts; the same seed gives the same heads.

    Guarantee: ``lost <= tolerance`` (or rounding), and never more heads than ``factor``.  Where
    the sentence says that no layer has fewer, that is proved (``bounds.least_heads``); otherwise
    the number is the smallest that the search reached.
    Cost: about 100 rounds of O(H e d^3) for a number of heads that succeeds, up to 8e9
    multiply-adds for one that fails; after 4e10 no further number is tried.
    """
    if not (isinstance(tolerance, int | float | np.number) and 0 < tolerance < 1):
        raise InvalidInput(f"tolerance must be a number between 0 and 1; got {tolerance!r}.")
    target = Target.of(coef)
    if target.is_zero:
        return target.nothing()
    rng = np.random.default_rng(random_state)
    core = reduce(target.tensor, SHARE * tolerance)
    least = least_heads(core.tensor, tolerance, rng)
    value, key = core.expand(*_heads_of(core.tensor, least, (1.0 - SHARE) * tolerance, rng))
    if target.lost_by(value, key) > tolerance:
        return factor(coef)
    sentence = "The function was written with {heads} (relative loss {lost})"
    if len(value) == least:
        sentence += "; no layer with fewer heads computes it"
    return target.finish(value, key, sentence + ".")


def _heads_of(
    tensor: NDArray, least: int, tolerance: float, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """The fewest heads found for the core; its singular value decomposition if no fewer."""
    n_outputs, n_dims, _, n_queries = tensor.shape
    patience = Patience(window=4, fraction=0.05, enough=tolerance)

    def attempt(n_heads: int) -> Trial:
        return first_within(tolerance, descents(tensor, n_heads, Frobenius(), patience, rng))

    # The bound first: it is mostly the answer, and the decomposition is costly for wide tokens.
    best = attempt(least).found
    if best is None:
        exact = split_heads(tensor)
        easy = int(np.ceil(EASE * generic_heads(n_dims, n_outputs, n_queries)))
        near = [least + more for more in (1, 2, 4, 8) if least + more < easy]
        best = fewest(attempt, [*near, easy, 2 * easy], len(exact[0]), TOTAL_WORK)
    return exact if best is None else (best.value, best.key)
