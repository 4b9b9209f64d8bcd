"""factor: coefficients -> heads by one singular value decomposition, exactly."""

from __future__ import annotations

from numpy.typing import ArrayLike

from polyattn.heads.algebra import split_heads
from polyattn.heads.compression import Compression, Target
from polyattn.heads.data_scale import DataScale
from polyattn.numerics.parallel import single_threaded_blas


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
    if target.is_zero:
        return target.nothing(data=data)
    return factored(target, data)


def factored(target: Target, data: DataScale | None) -> Compression:
    """``factor`` of coefficients in given units."""
    sentence = "The coefficients were factored into {heads} ({lost})."
    return target.finish(*split_heads(target.tensor), sentence, data=data)
