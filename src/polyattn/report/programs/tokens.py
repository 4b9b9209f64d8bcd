"""Runs as tokens: what was written, one token after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyattn.programs.language.encoding import Decoded
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.machines import NamedMachine
from polyattn.programs.words import token_words
from polyattn.report.programs.film import Film, Frame, Written


@dataclass(frozen=True)
class Watched:
    """A run with the margin of each token, and perhaps names for states and letters."""

    schema: Schema
    prompt: list[Token]
    decoded: Decoded
    margins: list[float]
    named: NamedMachine | None = None

    def words(self, token: Token) -> list[tuple[str, str]]:
        """A token attribute by attribute."""
        return token_words(self.schema, token, self.named)

    def written(self, start: int, stop: int) -> list[Written]:
        """The tokens of these numbers, as far as there are so many."""
        tokens = self.decoded.tokens[start:stop]
        return [
            Written(number, self.words(token), self.margins[number])
            for number, token in enumerate(tokens, start=start)
        ]

    def of_step(self, step: int, lead: int, each: int, last: bool) -> list[Written]:
        """The tokens of a step: ``each`` of them, after ``lead`` that only set the scene."""
        start = lead + each * step if step else 0
        stop = len(self.margins) if last else lead + each * (step + 1)
        return self.written(start, stop)

    @property
    def sureness(self) -> str:
        """The smallest margin of all tokens, as a sentence."""
        if not self.margins:
            return "The layer wrote no token."
        number, least = len(self.margins), min(self.margins)
        if number == 1:
            return f"The layer wrote one token, with a margin of {least:.3g}."
        where = f" (token {self.margins.index(least)})" if least < max(self.margins) else ""
        return f"The layer wrote {number:,} tokens, the margin of each at least {least:.3g}{where}."


def film_tokens(
    watched: Watched,
    most: int,
    findings: Sequence[str] = (),
    agrees: bool | None = None,
    law: str = Film.law,
) -> Film:
    """The tokens appended one by one; at most so many of them."""
    tokens = watched.decoded.tokens
    n_prompt, n_shown = len(watched.prompt), min(len(tokens), most)
    start = f"The prompt has {n_prompt} token{'' if n_prompt == 1 else 's'}."
    frames = [Frame("the prompt", start)]
    for number, token in enumerate(tokens[:n_shown]):
        held = "; ".join(f"{name} = {value}" for name, value in watched.words(token))
        end = " It is the last one." if watched.schema.is_last(token) else ""
        text = f"The layer writes {held or 'a token that holds nothing'}.{end}"
        frames.append(Frame(f"token {number}", text, written=watched.written(number, number + 1)))
    stop = "The stop rule ended it." if watched.decoded.stopped else "The limit ended it."
    return Film(
        frames,
        len(tokens),
        [*findings, f"{watched.sureness} {stop}"],
        agrees,
        law,
        prompt=[watched.words(token) for token in watched.prompt],
    )
