"""linearise: the best replacement of given softmax heads by linear attention, and what it loses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import (
    InvalidInput,
    require_choice,
    require_flag,
    require_integer,
    require_number,
)
from polyattn.interop import Projections
from polyattn.linearising.candidate import (
    Options,
    by_adam,
    errors_on,
    fit_candidate,
    layer_error,
    methods_of,
)
from polyattn.linearising.make_maps import MapName, require_map
from polyattn.linearising.result import Linearised
from polyattn.linearising.softmax_heads import SoftmaxHeads
from polyattn.model import SoftmaxAttention
from polyattn.model.attended import DENOMINATORS
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.numerics.scaling import require_powers
from polyattn.sequences import SequenceBatch, Sequences, as_batch, equal_sequences, split_apart

Array = NDArray[np.float64]

# The share of the sequences that is held out.
HELD_OUT = 0.2


def linearise(
    attention: SoftmaxAttention | Projections,
    X: Sequences,
    maps: MapName | Sequence[MapName] = "landmarks",
    *,
    n_features: int = 64,
    denominator: str = "auto",
    window: int | None = None,
    skip: bool = True,
    joint: bool = True,
    ridge: float | str = "auto",
    X_test: Sequences | None = None,
    adam: bool = False,
    random_state: RandomState = 0,
) -> Linearised:
    """Replace softmax heads by linear attention with a feature map, as well as it can be done.

    A head with queries q_t, keys k_s and values v_s, which returns o_t = sum_s softmax(q_t.k_s)
    v_s, becomes

        o^_t = sum_l (phi(q_t)^T M)_l Z_t[l],      Z_t[l] = sum_s psi_l(k_s) v_s / c_tl,

    with fixed features phi of queries and psi of keys, and M free.  Errors are those of outputs,
    after W_O.  What is linear in M has a closed form: no step size, no seed, no local minimum.

    Parameters
    ----------
    attention : SoftmaxAttention, or interop.Projections of softmax heads
        The heads as they are.  Of a SoftmaxAttention queries and keys are those of an SVD of
        ``attn``; maps that depend on their basis ("hedgehog", "elu") want the trained projections.
    X : sequences
        Real activations: what the layer gets in the model, before its projections.
    maps : "landmarks", "linear", "taylor", "hedgehog", "elu", "favor", or a function; or a list
        The feature map; of a list the one with the least error on every second held-out sequence
        is taken, and errors are those of the others.
        ``landmarks``: phi is softmax(q.c_j) for representative keys c_j and psi is exp(b_l.k) for
        representative queries b_l, both found from X.  ``linear``: [1, x].  ``taylor``: [1, x] and
        products of the leading directions, about ``n_features`` in all.  ``hedgehog``:
        softmax([x, -x]).  ``elu``: elu(x) + 1.  ``favor``: positive random features.  A function
        is given (..., r) and returns (..., F), for queries and for keys.
    n_features : int
        How many landmarks or random features; a fit takes n_features^6 / 3 flops for each head.
    denominator : "auto" | "features" | "tokens" | "fitted"
        c_tl: the sum of psi_l over the tokens attended to, so that each row is a mean of values
        ("features", of positive maps, their default), or the number of tokens ("tokens").
        "fitted": the weights phi^T M psi themselves are divided by their sum; then M has no
        closed form, and neither has the joint fit.
    window : int, optional
        One more row: softmax attention over tokens at distances below this, as LoLCATs have it.
        The cost stays linear in the number of tokens.
    skip : bool
        Add a linear map of the query token and a constant.
    joint : bool
        Fit all heads and the linear map together, for the outputs of the layer; without, each
        head by itself, and the linear map to what they leave.
    ridge : float or "auto"
        The penalty ridge * sum_i G_ii m_i^2, G the normal matrix; "auto": by sequences left out.
    X_test : sequences, optional
        What errors are measured on; by default a fifth of X is held out, equal sequences together.
    adam : bool
        Also train M of the same map by Adam, for the time of the fit and ten times that.
    random_state : a seed, for landmarks, random features and the choice of held-out sequences

    Returns
    -------
    Linearised
        ``layer``, ``table`` with relative errors of every head and of the layer beside those of
        other replacements, and ``outcome``: what is lost, in words.

    Guarantee: without "fitted" the errors of single heads in training are the least that any M
    has, up to the ridge, and the joint fit is a convex problem whose error falls with every pass.
    "fitted" is no global optimum: the best of some Sanathanan–Koerner steps.
    Cost: O(N n (n + F) d) for targets and features; F^2 G^2 / 2 flops for each sequence in the
    modes ``full`` and ``last``, for each token in mode ``causal`` or with "fitted"; (F G)^3 / 3 for
    each head; up to 24 passes of a joint fit.  Memory beside X does not depend on N.

    Examples
    --------
    >>> import numpy as np, polyattn as pa
    >>> layer = pa.data.random_softmax_layer(4, n_heads=2, random_state=0)
    >>> X = np.random.default_rng(0).standard_normal((60, 8, 4))
    >>> result = pa.linearise(layer, X, n_features=8)
    >>> result.layer(X).shape
    (60, 8, 4)
    """
    heads = SoftmaxHeads.of(attention)
    named = _maps(maps)
    options = Options(
        require_integer("n_features", n_features), denominator,
        None if window is None else require_integer("window", window),
        require_flag("skip", skip), require_flag("joint", joint), _ridge(ridge),
    )  # fmt: skip
    require_choice("denominator", denominator, ("auto", *DENOMINATORS))
    if require_flag("adam", adam) and denominator == "fitted":
        raise InvalidInput(
            "adam=True compares fits of what is linear in M; leave out denominator='fitted'."
        )
    rng = require_generator(random_state)
    training, test = _split(as_batch(X, n_dims=heads.n_dims), X_test, heads, rng)
    for batch, name in ((training, "X"), (test or training, "X_test")):
        require_powers(batch.values, name, 8)
    tried = [fit_candidate(heads, training, name, options, rng) for name in named]
    choosing, test = _for_choosing(test) if len(named) > 1 else (test, test)
    errors = [layer_error(each, choosing) for each in tried]
    best = tried[int(np.argmin(errors))]
    methods = methods_of(best)
    if adam:
        methods |= by_adam(best)
    found = errors_on(best, None, methods)
    nothing: dict[str, list[float]] = {name: [] for name in methods}
    held_out = nothing if test is None else errors_on(best, test, methods)
    candidates = zip(tried, errors, strict=True)
    return Linearised(
        best.layer, tuple(methods), _table(found), _table(held_out),
        best.ridges, len(training), 0 if test is None else len(test), best.joint.n_passes,
        best.joint.converged, best.seconds,
        tuple((each.view.feature_map.name, error) for each, error in candidates),
    )  # fmt: skip


def _table(found: dict[str, list[float]]) -> Array:
    """(rows, methods)."""
    return np.array(list(found.values())).T.copy()


def _maps(maps: object) -> list[MapName]:
    given = list(maps) if isinstance(maps, list | tuple) else [maps]
    if not given:
        raise InvalidInput("maps must hold at least one map; got an empty list.")
    return [require_map(each) for each in given]


def _ridge(ridge: float | str) -> float | None:
    """A number, or None where sequences left out choose it."""
    if isinstance(ridge, str):
        require_choice("ridge", ridge, ("auto",))
        return None
    return require_number("ridge", ridge)


def _split(
    batch: SequenceBatch, X_test: Sequences | None, heads: SoftmaxHeads, rng: np.random.Generator
) -> tuple[SequenceBatch, SequenceBatch | None]:
    """Sequences to fit, copies beside each other, and to test on; none where all are equal."""
    numbers = equal_sequences((batch, None))
    order = rng.permutation(numbers.max() + 1)
    n_test = max(1, int(HELD_OUT * len(order))) if X_test is None and len(order) > 1 else 0
    held_out, others = split_apart(numbers, order, n_test)
    if X_test is not None:
        return batch.chosen(others), as_batch(X_test, "X_test", n_dims=heads.n_dims)
    return batch.chosen(others), batch.chosen(np.sort(held_out)) if n_test else None


def _for_choosing(
    test: SequenceBatch | None,
) -> tuple[SequenceBatch | None, SequenceBatch | None]:
    """Held-out sequences that choose a map, and others, which have not seen the choice.

    A single sequence, with its copies, does both.
    """
    numbers = np.zeros(1, int) if test is None else equal_sequences((test, None))
    if test is None or numbers.max() == 0:
        return test, test
    even = numbers % 2 == 0
    return test.chosen(np.flatnonzero(even)), test.chosen(np.flatnonzero(~even))
