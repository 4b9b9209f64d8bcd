"""The universal automaton: the table of any automaton is part of the prompt, in two styles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from polyattn.errors import require_choice
from polyattn.programs.language.attributes import INTEGER, Attribute, variables
from polyattn.programs.language.instructions import (
    Conjunction,
    Constant,
    Copy,
    IfThen,
    Lookup,
    Register,
)
from polyattn.programs.language.program import Instruction, Program
from polyattn.programs.language.schema import Decoded, Schema, Task, Token
from polyattn.programs.language.sorts import line, symbols
from polyattn.programs.language.terms import Unequal
from polyattn.programs.library.fixed_dfa import AutomatonEncoding
from polyattn.programs.library.runs import held, require_fit, require_kind
from polyattn.programs.machines.automata import DFA

STYLES = ("registers", "one_hot")


def universal_dfa(
    n_states: int, n_letters: int, max_length: int, style: str = "registers"
) -> Program:
    """Runs any automaton on any word: ``run(dfa, word)`` gives the state after each letter.

    Parameters
    ----------
    n_states, n_letters, max_length : int
        The largest automata and words that fit.
    style : "registers" | "one_hot"
        ``one_hot``: every token holds one value of each attribute; two tokens per letter,
        L V + L + 1 + Q + Q V coordinates, V + 3 heads.
        ``registers``: the table of the current letter is kept in a register that tokens change
        by differences; one token per letter, L + 4 + 2 V + Q^2 + Q coordinates, Q + 3 heads.
    """
    one_hot = require_choice("style", style, STYLES) == "one_hot"
    encoding = OneHotEncoding if one_hot else RegisterEncoding
    return encoding(n_states, n_letters, max_length).program()


@dataclass(frozen=True)
class DFAEncoding(AutomatonEncoding):
    """What both styles share: sizes, checks, random and all automata."""

    n_states: int
    n_letters: int
    max_length: int

    def task(self, dfa: DFA, word: Any) -> Task:
        require_fit(require_kind(dfa, DFA, "run(dfa, word)"), self.n_states, self.n_letters)
        letters, (lead, each) = self.letters(dfa, word), self.layout

        def read(decoded: Decoded) -> list[int]:
            # Tokens that hold the states before and after all letters; too few are refused.
            found = decoded.tokens[lead::each]
            padded = [*found, *([{}] * (len(letters) + 1 - len(found)))]
            states = [held(token, "state", number) for number, token in enumerate(padded)]
            return [int(value[0]) for value in states[1:]]

        return Task(self._prompt(dfa, letters), lead + each * len(letters) + 1, read)

    def automaton(self, rng: np.random.Generator, machine: Any) -> DFA:
        if machine is None:
            return DFA(rng.integers(self.n_states, size=(self.n_states, self.n_letters)))
        return require_kind(machine, DFA, "traces(program, machines=[dfa])")

    def automata(self) -> Iterator[DFA]:
        rows = list(product(range(self.n_states), repeat=self.n_letters))
        return map(DFA, product(rows, repeat=self.n_states))

    @abstractmethod
    def program(self) -> Program:
        """The instructions that run any automaton, in tokens of this style."""

    @abstractmethod
    def _prompt(self, dfa: DFA, word: list[int]) -> list[Token]: ...


class OneHotEncoding(DFAEncoding):
    """Two tokens per letter, with one value of each attribute.

    Tokens: key(q, x) state(r) for the table, px(t, x) for the word, then cpos(0); after that in
    turn px(t, x) state(q), what is read, and key(q, x) cpos(t + 1), what is looked up.
    """

    name, layout = "one_hot_dfa", (0, 2)

    def program(self) -> Program:
        schema = self.schema
        px, cpos, state, key = schema.px, schema.cpos, schema.state, schema.key
        t, s, q, r, x, y = variables("t s q r x y")
        instructions: tuple[Instruction, ...] = (
            Copy(px(s, x) << px(s, x), match=px(t, y), query=cpos(t)),
            Lookup(state(r) << state(r), match=key(q, x), query=key(q, x)),
            Conjunction(key(q, x), state(q), px(t, x)),
            # The word has a token with the same px, so two tokens hold it.
            IfThen(cpos(t + 1), when=px(t, x), seen=2),
            Constant(state(0), when=cpos(0)),
        )
        return Program(schema, instructions, "universal DFA, one-hot")

    @cached_property
    def schema(self) -> Schema:
        state = symbols("state", self.n_states, landmarks=1)
        letter = symbols("letter", self.n_letters)
        attributes = (
            Attribute("px", (line("time", self.max_length, landmarks=1), letter)),
            Attribute("cpos", (line("time", self.max_length + 1, landmarks=1),)),
            Attribute("state", (state,)),
            Attribute("key", (state, letter)),
        )
        return Schema(attributes, stop_without=("px", "key"), encoding=self)

    def _prompt(self, dfa: DFA, word: list[int]) -> list[Token]:
        token, rules = self.schema.token, np.ndenumerate(dfa.transitions)
        table = [token(key=pair, state=int(after)) for pair, after in rules]
        return [*table, *(token(px=(t, x)) for t, x in enumerate(word)), token(cpos=0)]


class RegisterEncoding(DFAEncoding):
    """One token per letter; the table of the current letter is in a register.

    Tokens: letter(x) T(q, r) for the table, pos(t + 3) letter(x) for the word, then flag pos(0);
    after that flag pos(t + 2) dx T state, with dx the change of the letter two ahead and T the
    change of the table of the next letter.
    """

    name, layout = "register_dfa", (1, 1)

    def program(self) -> Program:
        schema = self.schema
        flag, pos, letter, dx = schema.flag, schema.pos, schema.letter, schema.dx
        T, state = schema.T, schema.state
        t, q, r, x = variables("t q r x")
        # The word has its own tokens at positions 3 and on, so two tokens hold those.
        start = range(3)
        later = tuple(Unequal(t, place) for place in start)
        instructions: tuple[Instruction, ...] = (
            Copy(dx(x) << letter(x), match=pos(t + 3), query=pos(t)),
            Copy(-(dx(x) << letter(x)), match=pos(t + 2), query=pos(t)),
            Lookup(T(q, r) << T(q, r), match=letter(x), query=dx(x)),
            Register(state(r) << T(q, r), flag=flag(), given=state(q)),
            Constant(state(0), when=pos(1)),
            *(IfThen(pos(place + 1), when=pos(place)) for place in start),
            *(IfThen(flag(), when=pos(place)) for place in start),
            IfThen(pos(t + 1), when=pos(t), seen=2, where=later),
            IfThen(flag(), when=pos(t), seen=2, where=later),
        )
        return Program(schema, instructions, "universal DFA, registers")

    @cached_property
    def schema(self) -> Schema:
        state = symbols("state", self.n_states, landmarks=1)
        letter = symbols("letter", self.n_letters)
        attributes = (
            Attribute("flag"),
            Attribute("pos", (line("time", self.max_length + 3, landmarks=2),)),
            Attribute("letter", (letter,)),
            Attribute("dx", (letter,), rounding=INTEGER),
            Attribute("T", (state, state), rounding=INTEGER),
            Attribute("state", (state,)),
        )
        return Schema(attributes, encoding=self)

    def _prompt(self, dfa: DFA, word: list[int]) -> list[Token]:
        token, rules = self.schema.token, np.ndenumerate(dfa.transitions)
        table = [token(letter=x, T=(q, int(after))) for (q, x), after in rules]
        letters = [token(pos=t + 3, letter=x) for t, x in enumerate(word)]
        return [*table, *letters, token(flag=(), pos=0)]
