"""Outcome: what came out of a call, by name and in words.

Every result has one.  The names that a kind of result can have are an ``OutcomeSet``, beside the
code that words them; the page of outcomes in the documentation is printed from these sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, TypeVar

from polyattn.errors import InvalidInput
from polyattn.files.fields import Check, entries, flag, one_of, text

Name_co = TypeVar("Name_co", bound=str, covariant=True)


@dataclass(frozen=True)
class Outcome(Generic[Name_co]):
    """A result in words: what happened, and what to do next.  ``str(outcome)`` is both.

    name : one of the names that this kind of result can have
    sentence : what happened
    next_step : what to do about it; empty where there is nothing to do
    ok : whether the result can be used as it is; if not, read the sentence
    """

    name: Name_co
    sentence: str
    next_step: str = ""
    ok: bool = True

    def __str__(self) -> str:
        return f"{self.sentence} {self.next_step}".strip()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class Meaning:
    """What a name of an outcome stands for, and whether such a result can be used as it is."""

    ok: bool
    text: str


class OutcomeSet(Generic[Name_co]):
    """The outcomes that one kind of result can have; calling it makes one of them.

    result : the name of the class of the result
    meanings : for each name, in the order of the documentation, what it stands for

    >>> from typing import Literal
    >>> Weather = Literal["dry", "wet"]
    >>> outcomes = OutcomeSet[Weather](
    ...     "Forecast", {"dry": Meaning(True, "No rain."), "wet": Meaning(False, "Rain.")}
    ... )
    >>> outcomes("wet", "It will rain at noon.", "Take a coat.").ok
    False
    """

    # Every set there is, in the order in which their modules are imported.
    all: ClassVar[list[OutcomeSet[Any]]] = []

    def __init__(self, result: str, meanings: Mapping[Name_co, Meaning]) -> None:
        self.result, self.meanings = result, dict(meanings)
        OutcomeSet.all.append(self)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of the documentation."""
        return tuple(self.meanings)

    def __call__(
        self,
        name: Name_co,  # type: ignore[misc]
        sentence: str,
        next_step: str = "",
        *,
        doubtful: bool = False,
    ) -> Outcome[Name_co]:
        """The outcome of that name in these words; a doubtful one is not ok, whatever its name."""
        if name not in self.meanings:
            raise InvalidInput(
                f"{self.result} has no outcome {name!r}; it has {', '.join(self.names)}."
            )
        return Outcome(name, sentence, next_step, self.meanings[name].ok and not doubtful)

    @property
    def check(self) -> Check:
        """The check of such an outcome in a file."""
        return entries(
            {"name": one_of(self.names), "sentence": text(), "next_step": text()}, {"ok": flag}
        )

    def from_dict(self, content: Mapping[str, Any]) -> Outcome[Name_co]:
        """The inverse of ``Outcome.to_dict``; a file cannot call ok what its name does not."""
        name, doubtful = content["name"], not content.get("ok", True)
        return self(name, content["sentence"], content["next_step"], doubtful=doubtful)
