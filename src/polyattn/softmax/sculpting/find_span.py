"""Phase 5, the span of the A_i from K* [chen2024].

K* encloses the affine hull of the A_i: it is long along A_i - A_1 and thin elsewhere.  The span is
that of the longest axes of the ellipsoid of K* (``ConvexBody.ellipsoid``), which lies inside K*
and, blown up, around it.  Beside it: widths along those axes and a few others, from pairs of
support points, the directions in which these pairs lie apart, and the axes of the Gram matrix of
all certified rows (``carve``), of which K* keeps a part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import null_space

from polyattn.softmax.examples import Matrix
from polyattn.softmax.recorder import Note
from polyattn.softmax.sculpting.carve import Carved

# Axes beyond the m - 1 longest along which K* is measured as well.
MORE_AXES = 2


@dataclass(frozen=True)
class HeadSpan:
    """Where the search looks: base + combinations of ``directions``.

    base : (d, d);  directions : (m - 1, d, d), orthonormal
    gap : eigenvalue m over eigenvalue m - 1 of the ellipsoid, counted from one, across the
        direction of the base; 1 without directions
    widths : of K* along the axes of the m + 1 smallest eigenvalues; inf if unbounded
    typical_width : of K* along an axis from the middle of the spectrum
    agreement : cosine of the largest angle between these directions and those in which support
        points lie apart
    gram_agreement : the same with the axes of the Gram matrix of all certified rows
    """

    base: Matrix
    directions: Matrix
    gap: float
    widths: tuple[float, ...]
    typical_width: float
    agreement: float
    gram_agreement: float

    @property
    def basis(self) -> Matrix:
        """[base, directions], shape (m, d, d)."""
        return np.concatenate([self.base[None], self.directions])

    @property
    def width_gap(self) -> float:
        """The shortest width in the span over the longest of the others; 1 without directions."""
        count = len(self.directions)
        if count == 0 or not np.isfinite(self.widths).all():
            return 1.0
        return min(self.widths[:count]) / max(*self.widths[count:], np.finfo(float).tiny)


def find_span(
    carved: Carved, n_heads: int, rng: np.random.Generator, note: Note | None = None
) -> HeadSpan:
    """The m - 1 directions in which K* is longest, by its ellipsoid.

    Without constraints there is nothing to find: the span is drawn at random, with infinite widths.
    Cost: 2 (m + MORE_AXES) linear programs.
    """
    n_dims = carved.centre.shape[0]
    count = min(n_heads - 1, max(n_dims * n_dims - 2, 0))
    if len(carved.body) == 0:
        drawn = rng.standard_normal((n_dims * n_dims, count + 1))
        axes = np.linalg.qr(drawn)[0].T.reshape(-1, n_dims, n_dims)
        eigenvalues = np.zeros(count + MORE_AXES)
        unbounded = (np.inf,) * len(eigenvalues)
        span = HeadSpan(0.3 * axes[0], axes[1:], 1.0, unbounded, np.inf, 0.0, 0.0)
    else:
        spectrum, columns = carved.body.ellipsoid()
        axes = columns.T.reshape(-1, n_dims, n_dims)
        n_measured = min(count + MORE_AXES, len(axes))
        measured = [*axes[:n_measured], axes[len(axes) // 2]]
        # The differences of two support points along each axis.
        chords: list[Matrix | None] = []
        widths: list[float] = []
        for axis in measured:
            ahead = carved.body.support(axis, carved.centre).point
            behind = carved.body.support(-axis, carved.centre).point
            chord = None if ahead is None or behind is None else ahead - behind
            chords.append(chord)
            widths.append(np.inf if chord is None else float(np.vdot(chord, axis)))
        # Relative to their median.
        middle = max(float(np.median(spectrum)), np.finfo(float).tiny)
        eigenvalues = spectrum[:n_measured] / middle
        gap = _gap(spectrum, columns, carved.centre, count)
        gram = list(carved.axes.T[:count])
        agreements = (_agreement(others, axes[:count]) for others in (chords[:-1], gram))
        *widths, typical = widths
        span = HeadSpan(carved.centre, axes[:count], gap, tuple(widths), typical, *agreements)
    (note or Note()).say(
        f"{len(span.directions)} directions; axes of the ellipsoid of K* jump by {span.gap:.2g}, "
        f"its widths by {span.width_gap:.2g}; support points agree to a cosine of "
        f"{span.agreement:.3f}, all certified rows to {span.gram_agreement:.3f}.",
        dimension=len(span.directions),
        directions=span.directions,
        eigenvalues=eigenvalues,
        gap=span.gap,
        widths=span.widths,
        typical_width=span.typical_width,
        width_gap=span.width_gap,
        agreement=span.agreement,
        gram_agreement=span.gram_agreement,
    )
    return span


def _gap(spectrum: Matrix, axes: Matrix, centre: Matrix, count: int) -> float:
    """How much the m-th eigenvalue exceeds the one before, across the base.

    Along the base itself K is long even for one head, because sharp patterns hardly determine
    their logits.
    """
    if count == 0:
        return 1.0
    across = null_space(centre.reshape(1, -1))
    turned = axes.T @ across
    spectrum = np.linalg.eigvalsh((turned.T * spectrum) @ turned)
    floor = np.finfo(float).eps * max(float(spectrum[-1]), np.finfo(float).tiny)
    last, next_one = spectrum[count - 1], spectrum[min(count, len(spectrum) - 1)]
    return float(max(next_one, floor) / max(last, floor))


def _agreement(chords: list[Matrix | None], directions: Matrix) -> float:
    """Cosine of the largest angle between the main directions of the chords and ``directions``."""
    count = len(directions)
    known = [chord.reshape(-1) for chord in chords if chord is not None]
    if count == 0:
        return 1.0
    if len(known) < count:
        return 0.0
    own = np.linalg.svd(np.array(known), full_matrices=False)[2][:count]
    return float(np.linalg.svd(own @ directions.reshape(count, -1).T, compute_uv=False).min())
