"""The universal automaton: the table of any automaton is part of the prompt."""

from __future__ import annotations

from polyattn.errors import require_choice
from polyattn.programs.language.attributes import variables
from polyattn.programs.language.instruction import Instruction
from polyattn.programs.language.instructions import (
    Conjunction,
    Constant,
    Copy,
    IfThen,
    Lookup,
    Register,
)
from polyattn.programs.language.program import Program
from polyattn.programs.language.terms import Unequal
from polyattn.programs.library.automata import OneHotEncoding, RegisterEncoding

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
    if require_choice("style", style, STYLES) == "one_hot":
        return _one_hot(OneHotEncoding(n_states, n_letters, max_length))
    return _registers(RegisterEncoding(n_states, n_letters, max_length))


def _one_hot(encoding: OneHotEncoding) -> Program:
    """One value of each attribute in a token.

    Tokens: key(q, x) state(r) for the table, px(t, x) for the word, then cpos(0); after that in
    turn px(t, x) state(q), what is read, and key(q, x) cpos(t + 1), what is looked up.
    """
    schema = encoding.schema
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


def _registers(encoding: RegisterEncoding) -> Program:
    """The table of the current letter in a register.

    Tokens: letter(x) T(q, r) for the table, pos(t + 3) letter(x) for the word, then flag pos(0);
    after that flag pos(t + 2) dx T state, with dx the change of the letter two ahead and T the
    change of the table of the next letter.
    """
    schema = encoding.schema
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
