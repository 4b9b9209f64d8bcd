"""certify_symbols: ids -> counts -> exact rank of each symbol that asks -> OneHotCertificate.

On one-hot tokens  psi = (how often symbol a occurs) [symbol b asks]:  d^2 features, in groups by b.
All are determined iff every group has rank d.  On all real inputs there are features beside these,
of two different coordinates, which one-hot tokens never show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from polyattn.certify.digest import digest_sequences
from polyattn.certify.domains import Domain
from polyattn.certify.domains.tokens import OneHot, Real
from polyattn.certify.one_hot.certificate import OneHotCertificate, UnseenFeatures
from polyattn.certify.one_hot.ranks import PRIME, GroupRank, group_rank, null_vector
from polyattn.certify.outcomes import IDENTIFIABLE, NOT_IDENTIFIABLE, UNDECIDED
from polyattn.certify.structure import Structure
from polyattn.errors import InvalidInput
from polyattn.features.symbol_counts import (
    DENSE_SYMBOLS,
    MOST_FEATURES,
    QueryGroup,
    query_groups,
    symbols_of,
)
from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.numerics.parallel import map_pieces, single_threaded_blas
from polyattn.sequences import SequenceBatch

# Up to this many symbols of a group all eigenvalues are as cheap as one.
DENSE_GROUP = 64


def certificate_of_ids(
    X: object, form: Form, domain: Domain, method: str, *others: object
) -> OneHotCertificate | None:
    """The certificate by counts of symbols, where these are many; None: as dense tokens.

    others : arguments of the caller that only certificates of dense tokens know
    """
    if not isinstance(X, SequenceBatch) or symbols_of(X) is None or X.n_dims <= DENSE_SYMBOLS:
        return None
    counts = form.is_plain and not form.bias and method != "float"
    if counts and isinstance(domain, Real | OneHot) and all(each is None for each in others):
        return certify_symbols(X, form, domain)
    n_features = Layout.of(form, X.n_dims).n_features
    if n_features > MOST_FEATURES:
        raise InvalidInput(
            "token ids of many symbols are certified for modes without a bias, on the domains "
            f"'real' and 'one_hot', in exact arithmetic; as dense tokens {X.n_dims:,} symbols have "
            f"{n_features:,} features, too many for anything else."
        )
    return None


@single_threaded_blas()
def certify_symbols(batch: SequenceBatch, form: Form, domain: Real | OneHot) -> OneHotCertificate:
    """Whether token ids determine the layer, exactly.

    Guarantee: as of ``certify``; every rank is that of integers.
    Cost: with r the rank of a group of k symbols 2 r k flops for each different row, for each
    symbol that asks.  Memory: the pairs of symbols that occur, and one group (or small ones).
    """
    if not form.is_plain or form.bias:
        raise InvalidInput(
            f"counts of symbols are certified for modes without a bias; got {form!r}. Certify "
            "dense tokens."
        )
    domain.require_lengths(batch)
    survey = _Survey.of(batch, form)
    layout, n_rows = Layout.of(form, batch.n_dims), batch.n_rows(form.mode)
    single = domain.only_single
    d, p = batch.n_dims, layout.n_features
    dimension = {
        "one_hot": d if single else d * d, "real": d * (d + 1) * (d + 2) // 6 if single else p,
    }[domain.name]  # fmt: skip
    n_zero = dimension - survey.n_occurring
    structured = n_zero > 0 and n_rows >= survey.n_occurring
    full = survey.rank == dimension
    unseen, structure, deficient, note = None, None, None, ""
    verdict, method = IDENTIFIABLE if full else NOT_IDENTIFIABLE, "exact"
    if not full and n_zero > 0:
        unseen = _missing(survey, domain, d)
    elif not full:
        deficient = survey.smallest_deficient
        if not survey.is_deficient(batch, form):
            verdict, deficient = UNDECIDED, None
            note = f"The rank is at least {survey.rank}; no direction could be confirmed."
    if structured:
        structure = Structure(
            n_zero, 0, survey.rest(batch, form), survey.never_asking, survey.never_seen
        )
    elif verdict == NOT_IDENTIFIABLE and n_rows < dimension:
        method = "count"
    whole = dimension == p or (domain.name == "real" and domain.length_range == (1, None))
    least, most = survey.spectrum(n_rows, full)
    return OneHotCertificate(
        verdict=verdict, verdict_on_real_inputs=verdict if whole else NOT_IDENTIFIABLE,
        domain=domain, mode=form.mode, bias=False, n_dims=d, n_sequences=len(batch),
        n_rows=n_rows, n_features=p, dimension=dimension, rank=survey.rank, lambda_min=least,
        lambda_max=most, method=method, prime=PRIME if method == "exact" else None, note=note,
        rounding=0.0, digest=digest_sequences(batch), structure=structure,
        n_occurring=survey.n_occurring, given_unseen=unseen, batch=batch, deficient=deficient,
        min_length=int(batch.lengths.min()), max_length=int(batch.lengths.max()),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Survey:
    """What is known of all groups, and the ends of the spectra of their second moments."""

    n_symbols: int
    groups: list[GroupRank]
    largest: float
    smallest: float  # of groups of full rank

    @classmethod
    def of(cls, batch: SequenceBatch, form: Form) -> _Survey:
        ranks: list[GroupRank] = []
        top, least = 0.0, np.inf
        for groups in query_groups(batch, form):
            found = map_pieces(group_rank, groups)
            ranks += found
            for group in groups:
                top = max(top, _largest(group, top))
            # The smallest eigenvalue is asked for only where all features are determined.
            if all(each.is_full and len(each.symbols) in (1, batch.n_dims) for each in ranks):
                grams = ((each.counts.T @ each.counts).toarray() for each in groups)
                least = min(least, *(float(np.linalg.eigvalsh(gram)[0]) for gram in grams))
        return cls(batch.n_dims, ranks, top, least)

    @property
    def rank(self) -> int:
        return sum(each.rank for each in self.groups)

    @property
    def n_occurring(self) -> int:
        return sum(len(each.symbols) for each in self.groups)

    @property
    def never_asking(self) -> tuple[int, ...]:
        """Symbols at which nothing is predicted."""
        return _others([each.query for each in self.groups], self.n_symbols)

    @property
    def never_seen(self) -> tuple[int, ...]:
        """Symbols that nothing attends to."""
        seen = np.unique(np.concatenate([each.symbols for each in self.groups]))
        return _others(seen, self.n_symbols)

    @property
    def smallest_deficient(self) -> int:
        """The symbol with the smallest group in which counts depend on each other."""
        deficient = [each for each in self.groups if not each.is_full]
        # Groups that are short need no proof.
        return min(deficient, key=lambda each: (not each.is_short, each.rank)).query

    def is_deficient(self, batch: SequenceBatch, form: Form) -> bool:
        """Whether it is proved that counts in some group depend on each other."""
        if any(each.is_short for each in self.groups):
            return True
        wanted = {each.query for each in self.groups if not each.is_full}
        for groups in query_groups(batch, form):
            for group in groups:
                if group.query in wanted and null_vector(group) is not None:
                    return True
        return False

    def rest(self, batch: SequenceBatch, form: Form) -> str:
        """The verdict on all features that occur."""
        if self.rank == self.n_occurring:
            return IDENTIFIABLE
        return NOT_IDENTIFIABLE if self.is_deficient(batch, form) else UNDECIDED

    def spectrum(self, n_rows: int, full: bool) -> tuple[float, float]:
        """Estimates of both ends of the spectrum of Lambda_D."""
        least = max(self.smallest, 0.0) / n_rows if full and np.isfinite(self.smallest) else 0.0
        return least, self.largest / n_rows


def _missing(survey: _Survey, domain: Real | OneHot, d: int) -> UnseenFeatures:
    """The first feature of the domain that never occurs."""
    how_often = np.zeros(d, dtype=np.int64)
    for each in survey.groups:
        how_often[each.symbols] += 1
    if domain.only_single:
        lacking = np.flatnonzero(how_often == 0)
        if domain.name == "one_hot" or (len(lacking) and lacking[0] == 0):
            symbol = int(lacking[0])
            return UnseenFeatures(((symbol, symbol, symbol),), (1,))
        return UnseenFeatures(((0, 0, 1),), (1,))
    lacking = np.flatnonzero(how_often < d)
    if domain.name == "real" and not (len(lacking) and lacking[0] == 0):
        return UnseenFeatures(((0, 1, 0),), (1,))
    symbol = int(lacking[0])
    asking = [each.query for each in survey.groups if symbol in each.symbols]
    return UnseenFeatures(((symbol, symbol, _others(asking, d)[0]),), (1,))


def _others(symbols: Sequence[int] | NDArray, count: int) -> tuple[int, ...]:
    """All numbers below ``count`` but these."""
    return tuple(np.setdiff1d(np.arange(count), symbols).tolist())


def _largest(group: QueryGroup, known: float) -> float:
    """The largest eigenvalue of counts^T counts, or 0 where it is below one that is known."""
    counts, k = group.counts, len(group.symbols)
    if not k or float(counts.sum(axis=0).max() * counts.sum(axis=1).max()) <= known:
        return 0.0
    if k <= DENSE_GROUP:
        return float(np.linalg.eigvalsh((counts.T @ counts).toarray())[-1])
    operator = LinearOperator((k, k), matvec=lambda v: counts.T @ (counts @ v), dtype=np.float64)
    _, vectors = eigsh(operator, k=1, which="LA", v0=np.ones(k), tol=1e-5)
    vector = counts @ vectors[:, 0]
    return float(vector @ vector / (vectors[:, 0] @ vectors[:, 0]))
