"""factor and compress: coefficients -> heads of the same function, exactly or as few as found."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.form.layout import Layout
from polyattn.heads.algebra import split_heads
from polyattn.heads.coordinates import reduce
from polyattn.heads.data_scale import DataScale
from polyattn.heads.descent import Patience
from polyattn.heads.head_counts import generic_heads, least_heads
from polyattn.heads.head_search import HeadTrial, descents, fewest
from polyattn.heads.head_set import HeadSet
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
def factor(
    coef: ArrayLike, data: DataScale | None = None, layout: Layout | None = None
) -> Compression:
    """Heads that compute ``coef`` (e, m, r) exactly, from the unfolding [(a,c), (b,l)] of S.

        S[a,c,b,l] = sum_h sigma_h u_h[a,c] v_h[b,l],   V_h = sqrt(sigma_h) u_h^T,
                                                        A_h = sqrt(sigma_h) v_h^T

    ``data`` give the units in which coordinates are of one size, and the outputs to judge by;
    ``layout`` is that of the form (None: that of the data, or the papers' layer).  The heads of
    each scale come from a decomposition of their own; linear terms are taken over.

    Guarantee: at most min(e v, k r) heads for each scale, with v values and k keys, which is
    min(e d, d^2) for the papers' layer; the loss is rounding [yau2024: Section 2].  Where no
    product folds, no layer has fewer.  Where all do, even one true head usually needs d^2 here,
    since S is its symmetric part; see ``compress``.
    Cost: O(d^4 min(e d, d^2)) time, O(e d^3) memory for d values, keys and queries.
    """
    target = Target.on(coef, data, layout=layout)
    return target.nothing() if target.is_zero else _factored(target)


@single_threaded_blas()
def compress(
    coef: ArrayLike,
    tolerance: float = 1e-10,
    random_state: RandomState = 0,
    data: DataScale | None = None,
    layout: Layout | None = None,
) -> Compression:
    """The same function with the fewest heads that were found.

    Looks for V, A with  ||S - sym T||_F <= tolerance ||S||_F,  T = sum_h V_h (x) A_h:  where
    columns are both key and value, the part of T that is antisymmetric in them changes nothing
    and is chosen so that few heads suffice.  Where nothing folds, the singular value
    decomposition of S has the fewest heads, and there is no search.

    Parameters
    ----------
    coef : array (e, m, r)
        Folded coefficients, as ``layer.coef``; (e, q, d) for the papers' layer.
    tolerance : float, 0 < tolerance < 1
        How exactly the coefficients are to be met; coefficients from a fit are themselves only
        known to about 1e-12 .. 1e-9.
    random_state : int, Generator or None
        Seed of the starts; the same seed gives the same heads.
    data : FitResult.data_scale or GramScale, optional
        The data behind the coefficients: S is then taken in units in which they are of size one,
        and every output on them has to be met to ``tolerance``, too.
    layout : Layout, optional
        That of the form (None: that of the data, or the papers' layer).  The heads of each scale
        are looked for by themselves; linear terms are taken over.

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
    target = Target.on(coef, data, layout=layout)
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
    heads = HeadSet.factored(target.tensor, target.layout.metric)
    return target.finish(heads, "The coefficients were factored into {heads} ({lost}).")


def _search(target: Target, tolerance: float, seed: int) -> Compression:
    """The fewest heads found that lose at most ``tolerance`` of S."""
    rng = np.random.default_rng(seed)
    metric = target.layout.metric
    parts = target.tensor.reshape(metric.n_scales, -1, *target.tensor.shape[1:])
    sizes = np.linalg.norm(parts.reshape(len(parts), -1), axis=1)
    # The losses of scales add up as squares.
    share, found, fewest_possible = tolerance / np.sqrt(len(parts)), [], True
    for part, size in zip(parts, sizes, strict=True):
        if size <= share and size < sizes.max():
            found.append((np.zeros((0, *part.shape[1::-1])), np.zeros((0, *part.shape[2:]))))
            continue
        # The only scale has norm one already.
        scaled, unit = (part, 1.0) if len(parts) == 1 else (part / size, size)
        value, key, least = _search_scale(
            scaled, Metric(None, metric.shared), share / unit, tolerance / unit, rng
        )
        found.append((unit * value, key))
        fewest_possible &= len(value) == least
    sentence = "The function was written with {heads} ({lost})"
    if fewest_possible:
        sentence += "; no layer with fewer heads computes it"
    return target.finish(HeadSet.joined(found, metric.shared), sentence + ".")


def _search_scale(
    whole: NDArray, fold: Metric, tolerance: float, bound: float, rng: np.random.Generator
) -> tuple[NDArray, NDArray, int]:
    """Values and keys of one scale that lose ``tolerance``, and the least that lose ``bound``."""
    tensor, metric, expand = reduce(whole, min(SHARE * tolerance, 0.5), fold)
    enough = (1.0 - SHARE) * tolerance
    least = least_heads(tensor, bound, rng, metric.shared)
    if metric.shared is not None and metric.shared < 2:
        return *expand(*split_heads(tensor, least_heads(tensor, enough, rng, 0))), least
    patience = Patience(window=4, fraction=0.05, enough=enough)

    def attempt(n_heads: int) -> HeadTrial:
        spent = 0.0
        for found in descents(tensor, (n_heads,), metric, patience, rng):
            spent += found.work
            if found.loss <= enough:
                return found, spent
        return None, spent

    # The bound first: it is mostly the answer, and the decomposition is costly for wide tokens.
    best, _ = attempt(least)
    if best is None:
        exact = split_heads(tensor)
        easy = int(np.ceil(EASE * generic_heads(tensor.shape, metric.shared)))
        near = [least + more for more in (1, 2, 4, 8) if least + more < easy]
        best = fewest(attempt, [*near, easy, 2 * easy], len(exact[0]), TOTAL_WORK)
    heads = exact if best is None else (best.heads.value, best.heads.key)
    return *expand(*heads), least
