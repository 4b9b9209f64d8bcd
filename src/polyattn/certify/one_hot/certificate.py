"""OneHotCertificate: a certificate of token ids, and the direction that they do not see, sparse."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.certificate import Certificate
from polyattn.certify.domains.tokens import TokenDomain
from polyattn.certify.literal_forward import literal_forward
from polyattn.certify.next_data import NextData
from polyattn.certify.one_hot.ranks import null_vector
from polyattn.certify.outcomes import NOT_IDENTIFIABLE
from polyattn.certify.witness import Witness, two_layers
from polyattn.display import Description
from polyattn.errors import InvalidInput
from polyattn.features.symbol_counts import query_groups
from polyattn.model import LinearAttention
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sequences import SequenceBatch

# Directions of more entries are not written out.
MOST_ENTRIES = 1 << 20


@dataclass(frozen=True)
class UnseenFeatures:
    """A difference of coefficients without effect on the data: integers at some features.

    features : (j, k, l) of each, the pair j <= k of coordinates attended to and the query's
    integers : the entries there; all others are 0
    """

    features: tuple[tuple[int, int, int], ...]
    integers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class OneHotCertificate(Certificate):
    """What ``certify`` returns for token ids of many symbols: a Certificate that stays sparse.

    Attributes
    ----------
    n_occurring : int
        How many features occur: pairs of a symbol that asks and one attended to.
    unseen : UnseenFeatures | None
        A direction that the data do not see, unless they determine the layer.
    Everything else as of a ``Certificate``; bounds and next data need dense tokens.
    """

    kind: ClassVar = "one_hot_certificate"

    n_occurring: int = 0
    given_unseen: UnseenFeatures | None = field(default=None, repr=False)
    batch: SequenceBatch | None = field(default=None, repr=False)
    # The symbol whose counts depend on each other, where no feature is missing.
    deficient: int | None = field(default=None, repr=False)

    @cached_property
    def unseen(self) -> UnseenFeatures | None:
        """A direction that the data do not see, by the features where it is not zero."""
        if self.given_unseen is not None or self.verdict != NOT_IDENTIFIABLE:
            return self.given_unseen
        if self.batch is None or self.deficient is None:
            return None
        asked, groups = self.deficient, query_groups(self.batch, self.form)
        group = next(each for some in groups for each in some if each.query == asked)
        vector = null_vector(group)
        return None if vector is None else unseen_of(asked, group.symbols, vector)

    @cached_property
    def direction(self) -> tuple[int, ...] | None:
        """The same as all coefficients (p,); refused where these are too many: see ``unseen``."""
        if self.unseen is None:
            return None
        if self.n_features > MOST_ENTRIES:
            raise InvalidInput(
                f"the direction would have {self.n_features:,} entries; .unseen holds those that "
                "are not zero."
            )
        vector = [0] * self.n_features
        for (j, k, query), entry in zip(self.unseen.features, self.unseen.integers, strict=True):
            vector[int(self.layout.pairs.position[j, k]) * self.n_dims + query] = entry
        return tuple(vector)

    def describe(self) -> Description:
        described = super().describe()
        described.facts["n_occurring"] = self.n_occurring
        described.labels["n_occurring"] = "features that occur"
        return described

    @single_threaded_blas()
    def witness(self, layer: LinearAttention | None = None) -> Witness:
        """Two layers of equal training loss, and a short input of the domain where they differ."""
        if self.verdict != NOT_IDENTIFIABLE:
            raise InvalidInput("there is no witness: all minimisers agree on the domain.")
        if self.unseen is None:
            raise InvalidInput(
                "a witness needs the data behind the certificate; certify the data again."
            )
        difference, sequence = _shown_by(self.unseen, self)
        layer_a, layer_b = two_layers(difference, layer)
        outputs = [literal_forward(each, sequence) for each in (layer_a, layer_b)]
        agreed = None
        if self.batch is not None:
            # That of all heads, on ids.
            found = difference(self.batch)
            rows = np.concatenate(found) if isinstance(found, list) else found
            agreed = float(np.max(np.abs(rows)))
        apart = float(np.max(np.abs(outputs[0] - outputs[1])))
        return Witness(layer_a, layer_b, sequence, outputs[0], outputs[1], apart, agreed)

    def bound(self, *_: Any, **__: Any) -> Any:
        """Not of token ids: refused."""
        raise InvalidInput(
            "bounds for each input need a certificate of dense tokens: certify "
            "numpy.eye(n_symbols)[ids], with few symbols."
        )

    def next_data(self, *_: Any, **__: Any) -> NextData:
        """Not of token ids: refused."""
        raise InvalidInput(
            "next_data needs a certificate of dense tokens. Pairs of symbols that never occur are "
            "seen once sequences of both are collected, the one that asks last."
        )

    def to_full_dict(self) -> dict[str, Any]:
        """The document that ``save`` writes."""
        from polyattn.certify.one_hot.document import to_document

        return to_document(self)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Certificate:
        """Read what ``save`` wrote; ``polyattn.verify`` says whether it is true of your data."""
        return Certificate.load(path)


def unseen_of(query: int, symbols: NDArray[np.int64], vector: list[int]) -> UnseenFeatures:
    """The direction of counts of symbols (k,) where one symbol asks."""
    known = [(int(a), entry) for a, entry in zip(symbols, vector, strict=True) if entry]
    return UnseenFeatures(
        tuple((a, a, query) for a, _ in known), tuple(entry for _, entry in known)
    )


def _shown_by(
    unseen: UnseenFeatures, certificate: OneHotCertificate
) -> tuple[LinearAttention, NDArray[np.float64]]:
    """The direction as a layer of one head, and a sequence (n, d) of the domain that shows it."""
    domain, d = certificate.domain, certificate.n_dims
    assert isinstance(domain, TokenDomain)  # noqa: S101 - custom domains take dense tokens
    least, most = domain.length_range
    attn, value = np.zeros((1, d, d)), np.zeros((1, d, 1))
    j, k, query = unseen.features[0]
    if domain.name == "real" and len(unseen.features) == 1:
        # <v, psi> = sum_s x_s[j] x_s[k] x[l], by one token with ones there.
        attn[0, query, k] = value[0, j, 0] = 1.0
        token = np.zeros(d)
        token[[j, k, query]] = 1.0
        return LinearAttention(attn, value, certificate.mode), np.tile(token, (least, 1))
    size = max(abs(entry) for entry in unseen.integers)
    entries = np.zeros(d)
    for (symbol, _, _), entry in zip(unseen.features, unseen.integers, strict=True):
        entries[symbol] = entry / size
    # One-hot tokens all have the value 1: the output is the sum of entries.
    attn[0, query], value[0] = entries, 1.0
    n_before = (least if most == 1 else max(least, 2)) - 1
    outputs = n_before * entries + entries[query]
    before = int(np.argmax(np.abs(outputs)))
    symbols = [before] * n_before + [query]
    return LinearAttention(attn, value, certificate.mode), np.eye(d)[symbols]
