"""HeadAudit: how much of each softmax head attention of low order explains, and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Description, Reported, Result, table_lines
from polyattn.files.fields import array, entries, listed, one_of, require
from polyattn.files.records import Record
from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.quoting import counted
from polyattn.sequences import MODES

#: What outputs are explained by, each containing those before it.
ORDERS = ("token", "mean", "linear", "second")

IN_WORDS = {
    "token": "a linear map of the token itself",
    "mean": "the mean of the values",
    "linear": "linear attention",
    "second": "attention of second order",
}

# A head is explained by an order that leaves less than a tenth of its variance.
EXPLAINED = 0.9

HeadAuditName = Literal["linear", "partly_linear", "not_linear", "undecided"]

HEAD_AUDIT_OUTCOMES = OutcomeSet[HeadAuditName](
    "HeadAudit",
    {
        "linear": Meaning(True, "Linear attention explains at least 90 % of every head."),
        "partly_linear": Meaning(True, "It explains so much of some heads, and not of others."),
        "not_linear": Meaning(True, "It explains so much of no head, even where it is fitted."),
        "undecided": Meaning(
            False, "It explains so much of some head where it is fitted, and of none elsewhere."
        ),
    },
)

OF_HEADS = ("shares", "training_shares", "errors")
OF_EACH_HEAD = ("constant_shares", "sizes", "logit_sizes", "logit_shares")
OF_LAYERS = ("layer_shares", "layer_training_shares", "layer_errors")
COUNTS = ("head_layers", "n_training", "n_held_out")


@dataclass(frozen=True, eq=False)
class HeadAudit(Reported, Result):
    """What ``audit`` returns of softmax layers without targets.

    Shares are of the variance of outputs about a constant, in the order of ``ORDERS``: an order's
    share is 1 - (squared error of its fit) / (squared error of the mean).  Fits are made on some
    sequences and measured on others; in expectation the share of all sequences there are lies
    between the two.  H counts the heads of all layers, one layer after the other.

    Attributes
    ----------
    shares, training_shares : arrays (H, 4)
        On sequences that were held out, and on those of the fits.  The former can be negative.
    errors : array (H, 4)
        Standard errors of ``shares``, over the sequences held out.
    constant_shares : array (H,)
        The share of the mean squared output that is one constant vector; which part of it belongs
        to which head cannot be seen, only the sum.
    sizes : array (H,)
        The variance of a head's output as a share of that of all heads of its layer, added up.
    logit_sizes : array (H,)
        The standard deviation of the logits of a token with tokens drawn at random.
    logit_shares : array (H,)
        Which share of the variance of logits lies in the leading directions, whose products are
        the features of second order.
    head_layers : integer array (H,)
        The layer of each head.
    layer_shares, layer_training_shares, layer_errors : arrays (L, 4)
        The same for the outputs of whole layers, by the sum of the fits of their heads.
    n_training, n_held_out : integer arrays (L,)
        Numbers of sequences.
    modes : texts (L,)
    """

    kind: ClassVar = "head_audit"

    shares: NDArray[np.float64]
    training_shares: NDArray[np.float64] = field(repr=False)
    errors: NDArray[np.float64] = field(repr=False)
    constant_shares: NDArray[np.float64] = field(repr=False)
    sizes: NDArray[np.float64] = field(repr=False)
    logit_sizes: NDArray[np.float64] = field(repr=False)
    logit_shares: NDArray[np.float64] = field(repr=False)
    head_layers: NDArray[np.int64] = field(repr=False)
    layer_shares: NDArray[np.float64]
    layer_training_shares: NDArray[np.float64] = field(repr=False)
    layer_errors: NDArray[np.float64] = field(repr=False)
    n_training: NDArray[np.int64] = field(repr=False)
    n_held_out: NDArray[np.int64] = field(repr=False)
    modes: tuple[str, ...] = ()

    @property
    def n_layers(self) -> int:
        """L, how many layers were audited."""
        return len(self.layer_shares)

    @property
    def n_heads(self) -> int:
        """H, how many heads they have together."""
        return len(self.shares)

    def heads_of(self, layer: int) -> NDArray[np.intp]:
        """The numbers of the heads of a layer, among all heads."""
        return np.flatnonzero(self.head_layers == layer)

    def explains(self, order: str) -> NDArray[np.bool_]:
        """Which heads (H,) an order, or one before it, explains: at least 90 %, held out."""
        return np.any(self.shares[:, : ORDERS.index(order) + 1] >= EXPLAINED, axis=1)

    def level(self, head: int) -> str | None:
        """The first of ``ORDERS`` that explains a head; None where none does."""
        return next((order for order in ORDERS if self.explains(order)[head]), None)

    def name_of(self, head: int) -> str:
        """What a head is called: by its number in its layer, from 0."""
        layer = int(self.head_layers[head])
        number = head - int(self.heads_of(layer)[0])
        return f"head {number}" if self.n_layers == 1 else f"head {number} of layer {layer}"

    @property
    def outcome(self) -> Outcome[HeadAuditName]:
        """How many heads linear attention explains, by a name of ``HeadAuditName``."""
        linear, n = self.explains("linear"), self.n_heads
        count = int(linear.sum())
        place = ORDERS.index("linear")
        possible = linear | (self.training_shares[:, place] >= EXPLAINED)
        advice = ""
        name: HeadAuditName = "partly_linear"
        if count == n:
            name = "linear"
        elif count == 0:
            name = "undecided" if possible.any() else "not_linear"
        open_heads = int(np.count_nonzero(possible & ~linear))
        if open_heads:
            heads = counted(open_heads, "head")
            advice = f"Give more sequences: of {heads} it explains as much in training alone."
        return HEAD_AUDIT_OUTCOMES(name, self._in_words(count), advice)

    def describe(self) -> Description:
        place = ORDERS.index("linear")
        facts: dict[str, Any] = {
            "n_layers": self.n_layers,
            "n_heads": self.n_heads,
            "n_training": int(self.n_training[0]),
            "n_held_out": int(self.n_held_out[0]),
        }
        for order in ORDERS:
            facts[f"explained_by_{order}"] = int(self.explains(order).sum())
        facts["linear_share"] = float(self.layer_shares[:, place].min())
        facts["largest_error"] = float(self.errors.max())
        labels = {
            f"explained_by_{order}": f"heads explained by {IN_WORDS[order]}" for order in ORDERS
        } | {
            "linear_share": "share of linear attention in a whole layer, least",
            "largest_error": "standard error of a share, largest",
        }
        columns = ("head", *ORDERS, "training", "size")
        rows = [
            (
                self.name_of(h).removeprefix("head "), *map(percent, self.shares[h]),
                percent(self.training_shares[h, -1]), percent(self.sizes[h]),
            )
            for h in range(self.n_heads)
        ]  # fmt: skip
        about = (
            f"{counted(self.n_heads, 'softmax head')} of {counted(self.n_layers, 'layer')}, mode "
            f"{' and '.join(dict.fromkeys(self.modes))}"
        )
        return self._described(
            "How linear are the heads?", about, facts, lines=table_lines(columns, rows),
            labels=labels,
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray]:
        """Shares, their errors, and what they are about."""
        names = (*OF_HEADS, *OF_EACH_HEAD, *OF_LAYERS, *COUNTS)
        return {name: getattr(self, name) for name in names}

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata."""
        return Record(self.kind, self.arrays(), {"modes": list(self.modes)})

    @classmethod
    def from_record(cls, record: Record) -> HeadAudit:
        """The inverse of ``to_record``."""
        arrays, held = record.arrays, record.metadata
        entries({"modes": listed(one_of(MODES))})(held, "metadata")
        n_layers, width = len(held["modes"]), len(ORDERS)
        require(n_layers > 0, "metadata.modes", "a list of at least one mode", held["modes"])
        top = n_layers - 1
        of_head = array((None,), least=0, most=top, dtype="int64")
        of_head(arrays.get("head_layers"), "arrays.head_layers")
        n_heads = len(arrays["head_layers"])
        checks = {"head_layers": of_head}
        checks |= dict.fromkeys(OF_HEADS, array((n_heads, width)))
        checks |= dict.fromkeys(OF_EACH_HEAD, array((n_heads,), least=0))
        checks |= dict.fromkeys(OF_LAYERS, array((n_layers, width)))
        checks |= dict.fromkeys(COUNTS[1:], array((n_layers,), least=1, dtype="int64"))
        entries(checks)(arrays, "arrays")
        found = np.unique(arrays["head_layers"])
        ordered = np.array_equal(found, np.arange(n_layers)) and np.all(
            np.diff(arrays["head_layers"]) >= 0
        )
        require(bool(ordered), "arrays.head_layers", "heads of all layers in their order", found)
        return cls(**arrays, modes=tuple(held["modes"]))

    def __repr__(self) -> str:
        return (
            f"HeadAudit({counted(self.n_heads, 'head')}, {self.outcome.name}, linear attention "
            f"{percent(self.layer_shares[:, ORDERS.index('linear')].min())} at least)"
        )

    def sentences(self, layer: int) -> list[str]:
        """What explains the heads of a layer: one sentence for each order, and for the rest."""
        heads, found = self.heads_of(layer), []
        first, levels = int(heads[0]), [self.level(h) for h in heads.tolist()]
        for order, words in (*IN_WORDS.items(), (None, "")):
            place = -1 if order is None else ORDERS.index(order)
            named = [
                f"{h - first} ({percent(self.shares[h, place])})"
                for h, level in zip(heads.tolist(), levels, strict=True)
                if level == order
            ]
            if named:
                who = "Head" if len(named) == 1 else "Heads"
                said = f"explained by {words}" if order else "not explained by second order"
                found.append(f"{who} {said}: {', '.join(named)}.")
        return found

    def _in_words(self, count: int) -> str:
        n, second = self.n_heads, int(self.explains("second").sum())
        said = "linear attention explains"
        if n == 1:
            text = f"Held out, {said} {percent(self.shares[0, 2])} of the head"
        else:
            whose = {0: f"none of {n} heads", n: f"all {n} heads"}.get(
                count, f"{count} of {n} heads"
            )
            text = f"Held out, {said} at least 90 % of {whose}"
        if n > 1 and second > count:
            text += f", and second order of {second - count} more"
        text += f". {self._extremes()}"
        return text

    def _extremes(self) -> str:
        """The head that is explained best, and the one that is explained least."""
        best, worst = int(np.argmax(self.shares[:, 2])), int(np.argmin(self.shares[:, 3]))
        text = f"{self.name_of(best).capitalize()} {self._explanation(best)}"
        if best == worst or self.explains("second")[worst]:
            return f"{text}."
        return f"{text}; {self.name_of(worst)} {self._explanation(worst)}."

    def _explanation(self, head: int) -> str:
        """What explains a head, behind its name."""
        order, shares = self.level(head), self.shares[head]
        if self.sizes[head] == 0.0:
            return "is constant on these sequences"
        if order is None:
            return f"is not explained by second order ({percent(shares[3])})"
        return f"is {percent(shares[ORDERS.index(order)])} {IN_WORDS[order]}"


def percent(share: float) -> str:
    """A share for people; what is less than all is never called 100 %."""
    shown = f"{100.0 * share:.0f}"
    return f"{100.0 * share:.3g} %" if shown == "100" and share < 0.9995 else f"{shown} %"
