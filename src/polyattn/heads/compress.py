"""factor and compress: coefficients -> heads of the same function, exactly or as few as found."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from polyattn.errors import InvalidInput
from polyattn.heads.algebra import reduce, split_heads
from polyattn.heads.data_scale import DataScale
from polyattn.heads.descent import Patience
from polyattn.heads.head_search import HeadTrial, descents, fewest, generic_heads, least_heads
from polyattn.heads.metric import Metric
from polyattn.heads.target import Compression, Target
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.random_state import RandomState, require_seed

# The reduction to a core may lose a tenth of the tolerance, the descent the rest.
SHARE = 0.1
# With so many times the heads that parameters count for, any function is found easily.
EASE = 1.35
# No search asks for less than a few roundings.
STRICTEST = 1e-14
# Multiply-adds after which no further number of heads is tried.
TOTAL_WORK = 4e10


@single_threaded_blas()
def factor(coef: ArrayLike, data: DataScale | None = None) -> Compression:
    """Heads that compute ``coef`` (e, q, d) exactly, from the unfolding [(a,j), (k,l)] of S.

        S[a,j,k,l] = sum_h sigma_h u_h[a,j] v_h[k,l],   V_h = sqrt(sigma_h) u_h^T,
                                                        A_h = sqrt(sigma_h) v_h^T

    ``data`` give the units in which coordinates are of one size, and the outputs to judge by.

    Guarantee: at most min(e d, d^2) heads; the loss is rounding [yau2024: Section 2].  Even one
    true head usually needs d^2 here, since S is its symmetric part; see ``compress``.
    Cost: O(d^4 min(e d, d^2)) time, O(e d^3) memory.
    """
    target = Target.on(coef, data)
    return target.nothing() if target.is_zero else _factored(target)


@single_threaded_blas()
def compress(
    coef: ArrayLike,
    tolerance: float = 1e-10,
    random_state: RandomState = 0,
    data: DataScale | None = None,
) -> Compression:
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
    random_state : int, Generator or None
        Seed of the starts; the same seed gives the same heads.
    data : FitResult.data_scale or GramScale, optional
        The data behind the coefficients: S is then taken in units in which they are of size one,
        and every output on them has to be met to ``tolerance``, too.

    Guarantee: ``lost <= tolerance``, and ``output_error <= tolerance`` where data are given (or
    rounding, as stated there); never more heads than ``factor``.  Where
    the sentence says that no layer has fewer, that is proved (``least_heads``); otherwise
    the number is the smallest that the search reached.
    Cost: about 100 rounds of O(H e d^3) for a number of heads that succeeds, up to 8e9
    multiply-adds for one that fails; after 4e10 no further number is tried.  Once more where
    outputs that nearly cancel ask for a smaller tolerance.
    """
    if not (isinstance(tolerance, int | float | np.number) and 0 < tolerance < 1):
        raise InvalidInput(f"tolerance must be a number between 0 and 1; got {tolerance!r}.")
    seed = require_seed(random_state)
    target = Target.on(coef, data)
    if target.is_zero:
        return target.nothing()
    found = _search(target, tolerance, seed)
    if found.output_error is not None and found.output_error > tolerance:
        # The outputs are smaller than the coefficients suggest.
        stricter = max(STRICTEST, 0.1 * tolerance**2 / found.output_error)
        found = _search(target, stricter, seed)
    met = found.lost <= tolerance and (found.output_error or 0.0) <= tolerance
    return found if met else _factored(target)


def _factored(target: Target) -> Compression:
    """``factor`` of coefficients in given units."""
    sentence = "The coefficients were factored into {heads} ({lost})."
    return target.finish(*split_heads(target.tensor), sentence)


def _search(target: Target, tolerance: float, seed: int) -> Compression:
    """The fewest heads found that lose at most ``tolerance`` of S."""
    rng = np.random.default_rng(seed)
    tensor, expand = reduce(target.tensor, SHARE * tolerance)
    enough = (1.0 - SHARE) * tolerance
    n_outputs, width, _, n_queries = tensor.shape
    least = least_heads(tensor, tolerance, rng)
    patience = Patience(window=4, fraction=0.05, enough=enough)

    def attempt(n_heads: int) -> HeadTrial:
        spent = 0.0
        for found in descents(tensor, n_heads, Metric(), patience, rng):
            spent += found.work
            if found.loss <= enough:
                return found, spent
        return None, spent

    # The bound first: it is mostly the answer, and the decomposition is costly for wide tokens.
    best, _ = attempt(least)
    if best is None:
        exact = split_heads(tensor)
        easy = int(np.ceil(EASE * generic_heads(width, n_outputs, n_queries)))
        near = [least + more for more in (1, 2, 4, 8) if least + more < easy]
        best = fewest(attempt, [*near, easy, 2 * easy], len(exact[0]), TOTAL_WORK)
    value, key = expand(*(exact if best is None else (best.value, best.key)))
    sentence = "The function was written with {heads} ({lost})"
    if len(value) == least:
        sentence += "; no layer with fewer heads computes it"
    return target.finish(value, key, sentence + ".")
