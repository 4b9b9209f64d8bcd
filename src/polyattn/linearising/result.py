"""Linearised: the layer that replaces softmax heads, how much it loses, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Description, Reported, Result, table_lines
from polyattn.files.fields import (
    array,
    entries,
    flag,
    integer,
    listed,
    number,
    require,
    text,
)
from polyattn.files.records import Record
from polyattn.model.linearised import LinearisedAttention
from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.quoting import counted

LinearisedName = Literal["replacement", "starting_point", "no_better", "not_held_out"]

LINEARISED_OUTCOMES = OutcomeSet[LinearisedName](
    "Linearised",
    {
        "replacement": Meaning(
            True, "At most 5 % of the variance of the outputs is lost on held-out sequences."
        ),
        "starting_point": Meaning(
            False, "More is lost, but less than by a linear map of single tokens: train it on."
        ),
        "no_better": Meaning(
            False, "A linear map of single tokens does as well on held-out sequences, or better."
        ),
        "not_held_out": Meaning(False, "Nothing was held out, so nothing is known of others."),
    },
)

# So much of the variance may be lost where a layer is called a replacement.
SMALL = 0.05

PLAIN = {
    "methods": listed(text(100), 1, 20), "n_training": integer(1), "n_held_out": integer(0),
    "n_passes": integer(0), "converged": flag, "seconds": number(0),
    "candidates": listed(entries({"map": text(100), "error": number(0)}), 0, 20),
}  # fmt: skip
FIELDS = entries(PLAIN, None)

# Errors of file are so large at most: where outputs do not vary they are infinite.
LARGEST = 1e300


@dataclass(frozen=True, eq=False)
class Linearised(Reported, Result):
    """What ``linearise`` returns.

    Attributes
    ----------
    layer : LinearisedAttention
        The replacement, callable and saved as every layer.
    methods : names of the columns of ``training`` and ``held_out``
        "fit" is the replacement; "token_wise" the best linear map of the query token; "taylor" and
        "hedgehog" are unfitted maps with weights that sum to one; "adam" and "adam_10" the map of
        the fit trained by Adam for the time of the fit and for ten times that.
    training, held_out : arrays (H + 1, number of methods)
        Squared errors relative to the variance of the outputs, of each head by itself and, in the
        last row, of the layer; NaN where a method has none.  ``held_out`` has no rows where nothing
        was held out.
    ridges : array (H,)
        The relative ridge of each head.
    n_training, n_held_out : numbers of sequences
    n_passes, converged : of the joint fit of all heads; 0 and True where there was none
    seconds : what the fit took
    candidates : (map, error of the layer on the held-out sequences that chose) of all maps tried
    """

    kind: ClassVar[str] = "linearised"

    layer: LinearisedAttention
    methods: tuple[str, ...]
    training: NDArray[np.float64] = field(repr=False)
    held_out: NDArray[np.float64] = field(repr=False)
    ridges: NDArray[np.float64] = field(repr=False)
    n_training: int
    n_held_out: int
    n_passes: int
    converged: bool
    seconds: float
    candidates: tuple[tuple[str, float], ...]

    @property
    def error(self) -> float:
        """What the fit loses of the variance of the layer's outputs: held out, or in training."""
        return self._of_layer("fit")

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row for each head, and one for the layer: relative errors on both sets."""
        rows = []
        for i in range(len(self.training)):
            row: dict[str, Any] = {"head": i if i < len(self.training) - 1 else "layer"}
            for name, errors in (("", self.held_out), ("_training", self.training)):
                if len(errors):
                    found = zip(self.methods, errors[i], strict=True)
                    row |= {method + name: float(each) for method, each in found}
            rows.append(row)
        return rows

    @property
    def outcome(self) -> Outcome[LinearisedName]:
        """How much is lost, by a name of ``LinearisedName``, and in words."""
        heads = counted(len(self.training) - 1, "softmax head")
        where = "held-out sequences" if self.n_held_out else "the training sequences"
        others = [
            f"{words} {_percent(self._of_layer(name))}"
            for name, words in _RIVALS.items()
            if name in self.methods and not np.isnan(self._of_layer(name))
        ]
        sentence = (
            f"Replacing the {heads} leaves {_percent(self.error)} of the variance unexplained on "
            f"{where}; {', '.join(others)}."
        )
        if not self.converged:
            sentence += f" It still gained after {counted(self.n_passes, 'pass')}."
        advice = ""
        if any(self._of_layer(name) < self.error for name in ("taylor", "hedgehog")):
            advice = "A map that needs no fit loses less: give more sequences."
        if not self.n_held_out:
            advice = "Give more sequences, or others to test on as X_test."
            return LINEARISED_OUTCOMES("not_held_out", sentence, advice)
        if self.error >= self._of_layer("token_wise"):
            advice = "Try other maps, more n_features, a window, or more sequences."
            return LINEARISED_OUTCOMES("no_better", sentence, advice)
        if self.error > SMALL:
            advice = (
                "It is an initialisation, no replacement: train result.to_torch() on, or try more "
                "n_features and a window."
            )
            return LINEARISED_OUTCOMES("starting_point", sentence, advice)
        return LINEARISED_OUTCOMES("replacement", sentence, advice)

    def to_torch(self) -> Any:
        """The layer as a trainable ``torch.nn.Module`` that runs in linear time."""
        from polyattn.interop import to_torch

        return to_torch(self.layer)

    def describe(self) -> Description:
        facts: dict[str, Any] = {
            "error": self.error, "map": self.layer.feature_map.name,
            "n_training": self.n_training, "n_held_out": self.n_held_out,
            "n_passes": self.n_passes, "seconds": self.seconds,
            "errors": self.table[-1],
            "candidates": [{"map": name, "error": error} for name, error in self.candidates],
        }  # fmt: skip
        shown = self.held_out if len(self.held_out) else self.training
        last = len(shown) - 1
        rows = [("layer" if i == last else i, *map(float, each)) for i, each in enumerate(shown)]
        # The layer first: of many heads only some are shown.
        lines = table_lines(("head", *self.methods), [rows[-1], *rows[:-1]])
        of_layer = self.layer.describe()
        return self._described(
            "Linearised attention", of_layer.about, facts, sizes=of_layer.sizes, lines=lines,
            labels={"error": "unexplained share of the variance"},
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray]:
        """Errors and ridges, and the arrays of the layer."""
        own = {"training": self.training, "ridges": self.ridges}
        held_out = {"held_out": self.held_out} if len(self.held_out) else {}
        return own | held_out | self.layer.arrays()

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata."""
        of_layer = self.layer.to_record()
        own = {"training": _finite(self.training), "held_out": _finite(self.held_out)}
        arrays = {f"layer.{name}": each for name, each in of_layer.arrays.items()}
        metadata: dict[str, Any] = {name: getattr(self, name) for name in PLAIN}
        metadata["methods"] = list(self.methods)
        metadata["candidates"] = [
            {"map": name, "error": min(error, LARGEST)} for name, error in self.candidates
        ]
        metadata["layer"] = of_layer.metadata
        return Record(self.kind, own | {"ridges": self.ridges} | arrays, metadata)

    @classmethod
    def from_record(cls, record: Record) -> Linearised:
        """The inverse of ``to_record``."""
        held: dict[str, Any] = {n: each for n, each in record.metadata.items() if n != "layer"}
        FIELDS(held, "metadata")
        inner = {
            name.removeprefix("layer."): each
            for name, each in record.arrays.items()
            if name.startswith("layer.")
        }
        of_layer = record.metadata.get("layer")
        require(isinstance(of_layer, dict), "metadata.layer", "an object", of_layer)
        layer = LinearisedAttention.from_record(
            Record(LinearisedAttention.kind, inner, of_layer or {})
        )
        own = {name: each for name, each in record.arrays.items() if not name.startswith("layer.")}
        shape = (layer.n_heads + 1, len(held["methods"]))
        seen = shape if held["n_held_out"] else (0, shape[1])
        checks = {"training": array(shape, least=-1.0), "held_out": array(seen, least=-1.0)}
        entries(checks | {"ridges": array((layer.n_heads,), least=0.0)})(own, "arrays")
        for name in ("fit", "token_wise", "taylor", "hedgehog"):
            require(name in held["methods"], "metadata.methods", f"with {name!r}", held["methods"])
        held["methods"] = tuple(held["methods"])
        held["candidates"] = tuple((each["map"], each["error"]) for each in held["candidates"])
        training, held_out = (_restored(own[name]) for name in ("training", "held_out"))
        return cls(layer=layer, training=training, held_out=held_out, ridges=own["ridges"], **held)

    def __repr__(self) -> str:
        name = self.layer.feature_map.name
        return f"Linearised({self.outcome.name}, map {name!r}, error {self.error:.3g})"

    def _of_layer(self, method: str) -> float:
        """The error of a method for the layer: held out where there is one."""
        errors = self.held_out if len(self.held_out) else self.training
        return float(errors[-1, self.methods.index(method)])


_RIVALS = {
    "token_wise": "the best linear map of single tokens leaves",
    "taylor": "unfitted Taylor weights",
    "hedgehog": "unfitted Hedgehog weights",
    "adam": "the same map trained by Adam in the same time",
    "adam_10": "in ten times the time",
}


def _percent(error: float) -> str:
    """A share in words; what is far above all is given as a factor."""
    if not np.isfinite(error):
        return "infinitely many times"
    if error >= 10.0:
        return f"{error:.3g} times"
    return f"{100.0 * error:.2g} %" if error < 0.995 else f"{100.0 * error:.0f} %"


def _finite(errors: NDArray) -> NDArray[np.float64]:
    """Errors as a file holds them: -1 where there is none, and no infinity."""
    return np.nan_to_num(errors, nan=-1.0, posinf=LARGEST)


def _restored(errors: NDArray) -> NDArray[np.float64]:
    found = np.where(errors < 0.0, np.nan, errors)
    return np.where(errors >= LARGEST, np.inf, found)
