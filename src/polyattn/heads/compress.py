"""factor and compress: coefficients -> heads of the same function, exactly or as few as found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.form.layout import Layout
from polyattn.heads.algebra import split_heads
from polyattn.heads.coordinates import reduce
from polyattn.heads.data_scale import DataScale
from polyattn.heads.descent import Patience
from polyattn.heads.head_counts import generic_heads, least_heads
from polyattn.heads.head_search import WORK_PER_COUNT, FreeDescent, HeadTrial, descents, fewest
from polyattn.heads.head_set import HeadSet
from polyattn.heads.metric import Metric
from polyattn.heads.target import Compression, Target
from polyattn.heads.unseen import Unseen
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.random_state import RandomState, require_seed

# The reduction to a core may lose a tenth of the tolerance, the descent the rest.
SHARE = 0.1
# With so many times the heads that parameters count for, any function is found easily.
EASE = 1.35
# No search asks for less than a few roundings.
STRICTEST = 1e-14
# Numbers of heads that are tried where some directions change no output.
LADDER = (1, 2, 3, 4, 6, 8, 12, 16)
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
    product folds, no layer with these coefficients has fewer.  Where all do, even one true head
    usually needs d^2 here, since S is its symmetric part; see ``compress``.
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
    decomposition of S has the fewest heads, and there is no search.  Forms that see one number
    more than once leave other directions of T without effect, too (``unseen``): there the heads
    compute the same function, linear terms included, with other coefficients.

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
    multiply-adds for one that fails; after 4e10 no further number is tried.  J scales together
    take sqrt(J) times as long.  Once more where outputs that nearly cancel ask for a smaller
    tolerance.
    """
    if not (isinstance(tolerance, int | float | np.number) and 0 < tolerance < 1):
        raise InvalidInput(f"tolerance must be a number between 0 and 1; got {tolerance!r}.")
    seed = require_seed(random_state)
    target = Target.on(coef, data, layout=layout)
    target = replace(target, unseen=Unseen.of(target.layout, target.units))
    if np.linalg.norm(target.visible(target.tensor)) <= STRICTEST:
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
    metric, unseen = target.layout.metric, target.unseen
    search = ScaleSearch(np.random.default_rng(seed), 1.0 / np.sqrt(metric.n_scales))
    parts = target.tensor.reshape(metric.n_scales, -1, *target.tensor.shape[1:])
    seen = target.visible(target.tensor).reshape(len(parts), -1)
    sizes = np.linalg.norm(seen, axis=1)
    # The losses of scales add up as squares.
    bound = tolerance if unseen is None else tolerance * float(np.linalg.norm(sizes))
    share, found = bound / np.sqrt(len(parts)), []
    fewest_possible = unseen is None or unseen.complete
    for scale, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        if size <= share and size < sizes.max():
            found.append((np.zeros((0, *part.shape[1::-1])), np.zeros((0, *part.shape[2:]))))
            continue
        # The only scale has norm one already, if all of it is seen.
        unit = 1.0 if unseen is None and len(parts) == 1 else size
        own = None if unseen is None or not unseen.bases[scale].size else unseen.bases[scale]
        fold = Metric(None, metric.shared, unseen=own)
        value, key, least = search.heads(part / unit, fold, share / unit, bound / unit)
        found.append((unit * value, key))
        fewest_possible &= len(value) == least
    sentence = "The function was written with {heads} ({lost})"
    if fewest_possible:
        sentence += "; no layer with fewer heads computes it"
    return target.finish(HeadSet.joined(found, metric.shared), sentence + ".")


@dataclass(frozen=True)
class ScaleSearch:
    """The search for the heads of one scale.

    rng : where random starts come from
    effort : the part of the limits on work that is spent here, where there are several scales
    """

    rng: np.random.Generator
    effort: float = 1.0

    def heads(
        self, whole: NDArray, fold: Metric, tolerance: float, bound: float
    ) -> tuple[NDArray, NDArray, int]:
        """Values and keys that lose ``tolerance``, and the least number that loses ``bound``."""
        if fold.unseen is not None:
            return self._seen_heads(whole, fold, tolerance)
        tensor, metric, expand = reduce(whole, min(SHARE * tolerance, 0.5), fold)
        enough = (1.0 - SHARE) * tolerance
        least = least_heads(tensor, bound, self.rng, metric.shared)
        if metric.shared is not None and metric.shared < 2:
            return *expand(*split_heads(tensor, least_heads(tensor, enough, self.rng, 0))), least
        attempt = self._attempts(tensor, metric, enough)
        # The bound first: it is mostly the answer, and the decomposition is costly for wide tokens.
        best, _ = attempt(least)
        if best is None:
            exact = split_heads(tensor)
            easy = int(np.ceil(EASE * generic_heads(tensor.shape, metric.shared)))
            near = [least + more for more in (1, 2, 4, 8) if least + more < easy]
            best = self._fewest(attempt, [*near, easy, 2 * easy], len(exact[0]))
        heads = exact if best is None else (best.heads.value, best.heads.key)
        return *expand(*heads), least

    def _seen_heads(
        self, tensor: NDArray, metric: Metric, tolerance: float
    ) -> tuple[NDArray, NDArray, int]:
        """The same where some directions change no output; one head at least is needed."""
        attempt = self._attempts(tensor, metric, tolerance)
        best = self._fewest(attempt, LADDER, len(split_heads(tensor)[0]))
        if best is not None:
            return best.heads.value, best.heads.key, 1
        value, key, _ = self.heads(tensor, Metric(None, metric.shared), tolerance, tolerance)
        return value, key, 1

    def _attempts(
        self, tensor: NDArray, metric: Metric, enough: float
    ) -> Callable[[int], HeadTrial]:
        """From a number of heads to the first of several descents that loses ``enough``."""
        patience = Patience(window=4, fraction=0.05, enough=enough)
        most = self.effort * WORK_PER_COUNT

        def attempt(n_heads: int) -> HeadTrial:
            spent = 0.0
            for found in descents(tensor, (n_heads,), metric, patience, self.rng, most):
                spent += found.work
                if found.loss <= enough:
                    return found, spent
            return None, spent

        return attempt

    def _fewest(
        self, attempt: Callable[[int], HeadTrial], ladder: Iterable[int], upper: int
    ) -> FreeDescent | None:
        return fewest(attempt, ladder, upper, self.effort * TOTAL_WORK)
