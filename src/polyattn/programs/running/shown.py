"""ShownRun: a run for people to look at, the same object for terminals and for pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyattn.programs.language.attributes import INTEGER, Attribute, Value
from polyattn.programs.language.schema import Decoded, Schema, Token, atom_text
from polyattn.programs.machines.named import NamedMachine

# Cells on a line; longer tapes are cut around the head.
_WIDTH = 31


@dataclass(frozen=True)
class WrittenToken:
    """A token that the layer wrote: its number, what it holds in words, and its margin."""

    number: int
    words: list[tuple[str, str]]
    margin: float


@dataclass(frozen=True)
class RunStep:
    """How things are before a step, and what the step does.

    head : the place of the cell that is read, if there is one
    changed : the place and the new content of the cell that the step before has written to
    rule : the state and the letter whose rule is applied
    """

    state: str
    text: str
    head: int | None = None
    changed: tuple[int, str] | None = None
    rule: tuple[int, int] | None = None
    written: list[WrittenToken] = field(default_factory=list)


@dataclass(frozen=True)
class ShownRun:
    """A run to look at.

    tokens : all that the layer wrote
    steps, n_steps : the steps, of the whole run perhaps only the first; how many it has
    findings : what came out, in sentences
    agrees, reference : whether the reference gives the same (None: there is none), and what it is
    cells, first : the tape or the word at the start, empty where tokens are all there is to see,
        and the number of the first cell; 0 is the first letter of the input
    reads : whether cells are a word that is read from left to right, and not a tape
    prompt : the tokens that were given, where tokens are all there is to see
    named : the machine with its names, if there is one
    result : what was read from the tokens; None if they are no run
    lines, facts, content : for a terminal line by line, as a table, and in JSON types
    """

    tokens: list[Token]
    steps: list[RunStep]
    n_steps: int
    findings: list[str]
    agrees: bool | None = None
    reference: str = "machine's own rules"
    cells: list[str] = field(default_factory=list)
    first: int = 0
    reads: bool = False
    prompt: list[list[tuple[str, str]]] = field(default_factory=list)
    named: NamedMachine | None = None
    result: Any = None
    lines: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether the last step is the end of the run."""
        return len(self.steps) == self.n_steps + 1

    @property
    def n_shown(self) -> int:
        """How many steps of a run that was cut are shown; of tokens the first is none."""
        return len(self.steps) if self.cells else len(self.steps) - 1

    @property
    def attributes(self) -> list[str]:
        """The attributes that some token has, in the order of their first appearance."""
        written = (token.words for step in self.steps for token in step.written)
        return list(dict.fromkeys(name for words in (*self.prompt, *written) for name, _ in words))

    def listed(self) -> Iterator[tuple[int, RunStep, str]]:
        """The number of each step, the step, and its cells on one line."""
        cells = list(self.cells)
        for number, step in enumerate(self.steps):
            if step.changed:
                cells[step.changed[0]] = step.changed[1]
            yield number, step, cells_line(cells, step.head)

    def to_dict(self) -> dict[str, Any]:
        """What the script of a page needs, in plain types."""
        steps = [
            vars(step)
            | {"written": [[one.number, f"{one.margin:.3g}", one.words] for one in step.written]}
            for step in self.steps
        ]
        attributes = self.attributes if self.prompt else []
        page = {"cells": self.cells, "reads": self.reads, "prompt": self.prompt}
        return page | {"attributes": attributes, "steps": steps}


@dataclass(frozen=True)
class WatchedRun:
    """What was decoded, perhaps with the margin of each token and names for states and letters."""

    schema: Schema
    prompt: list[Token]
    decoded: Decoded
    margins: list[float] | None = None
    named: NamedMachine | None = None

    def of_step(self, step: int, layout: tuple[int, int], last: bool) -> list[WrittenToken]:
        """The tokens of a step, if margins were kept.

        layout : how many tokens come before the first step, and how many there are for each
        """
        lead, each = layout
        start = lead + each * step if step else 0
        return self._written(start, None if last else lead + each * (step + 1))

    @property
    def sureness(self) -> list[str]:
        """The smallest margin of all tokens, as a sentence, if margins were kept."""
        if self.margins is None:
            return []
        if not self.margins:
            return ["The layer wrote no token."]
        number, least = len(self.margins), min(self.margins)
        if number == 1:
            return [f"The layer wrote one token, with a margin of {least:.3g}."]
        where = f" (token {self.margins.index(least)})" if least < max(self.margins) else ""
        said = f"The layer wrote {number:,} tokens, the margin of each at least {least:.3g}{where}."
        return [said]

    def by_tokens(
        self,
        most: int,
        findings: Sequence[str] = (),
        agrees: bool | None = None,
        reference: str = ShownRun.reference,
        result: Any = None,
    ) -> ShownRun:
        """The run as tokens that are appended one by one; at most so many of them."""
        tokens = self.decoded.tokens
        n_prompt = len(self.prompt)
        start = f"The prompt has {n_prompt} token{'' if n_prompt == 1 else 's'}."
        steps = [RunStep("the prompt", start)]
        for number, token in enumerate(tokens[:most]):
            held = "; ".join(f"{name} = {value}" for name, value in self._words(token))
            end = " It is the last one." if self.schema.is_last(token) else ""
            text = f"The layer writes {held or 'a token that holds nothing'}.{end}"
            written = self._written(number, number + 1)
            steps.append(RunStep(f"token {number}", text, written=written))
        stop = "The stop rule ended it." if self.decoded.stopped else "The limit ended it."
        said = " ".join([*self.sureness, stop])
        return ShownRun(
            tokens, steps, len(tokens), [*findings, said], agrees, reference,
            prompt=[self._words(token) for token in self.prompt], named=self.named, result=result,
        )  # fmt: skip

    def _words(self, token: Token) -> list[tuple[str, str]]:
        """A token attribute by attribute: what each that it has holds, in words."""
        found: dict[str, list[str]] = {}
        for (name, value), times in token.items():
            attribute: Attribute = getattr(self.schema, name)
            inside = value_words(attribute, value, self.named)
            if attribute.rounding == INTEGER:
                sign = {1: "+", -1: "\N{MINUS SIGN}"}
                count = sign.get(times, f"{times:+d} \N{MULTIPLICATION SIGN} ")
                inside = f"{count}({inside})" if "," in inside else f"{count}{inside}"
            found.setdefault(name, []).append(inside or "yes")
        return [(name, ", ".join(held)) for name, held in found.items()]

    def _written(self, start: int, stop: int | None) -> list[WrittenToken]:
        """The tokens of these numbers, as far as there are so many."""
        if self.margins is None:
            return []
        return [
            WrittenToken(number, self._words(token), self.margins[number])
            for number, token in enumerate(self.decoded.tokens[start:stop], start=start)
        ]


def cells_line(cells: Sequence[str], head: int | None) -> str:
    """Cells on one line, the head in brackets; long tapes are cut around it."""
    start = min(max(0, (head or 0) - _WIDTH // 2), max(0, len(cells) - _WIDTH))
    end = min(len(cells), start + _WIDTH)
    shown = [f"[{cells[at]}]" if at == head else f" {cells[at]} " for at in range(start, end)]
    return f"{'..' if start else ''}{''.join(shown)}{'..' if end < len(cells) else ''}"


def token_line(schema: Schema, token: Token, named: NamedMachine | None = None) -> str:
    """A token on one line, as ``schema.show``, with states and letters by their names."""
    return " ".join(
        atom_text(name, value_words(getattr(schema, name), value, named), times)
        for (name, value), times in token.items()
    )


def value_words(attribute: Attribute, value: Value, named: NamedMachine | None = None) -> str:
    """A value part by part: ``odd, 1`` for the state 1 and the letter 1 of an automaton."""
    if isinstance(value, str):
        return value
    known = {"state": named.states, "letter": named.letters} if named else {}
    said = []
    for sort, part in zip(attribute.sorts, value, strict=True):
        names = known.get(sort.name, ())
        # A layer that is wrong may write states that the machine does not have.
        said.append(names[part] if isinstance(part, int) and part < len(names) else str(part))
    return ", ".join(said)
