"""The universal Turing machine on a circular tape that is never rewritten, only changed."""

from __future__ import annotations

from polyattn.programs.language.instructions import Instruction, Lookup, Register
from polyattn.programs.language.patterns import variables
from polyattn.programs.language.program import Program
from polyattn.programs.language.terms import Unequal
from polyattn.programs.library.turing_encoding import MOVES, TuringEncoding


def universal_turing_machine(n_states: int, n_letters: int, n_cells: int) -> Program:
    """Runs any Turing machine: ``run(machine, tape, max_steps=1000, position=0)``.

    The tape is a circle of ``n_cells``; a shorter one is filled with blanks.  The result is a
    TuringRun: tape, state, position, steps, halted, history.

    Tokens: key(q, x) mq(move, r) letter(+new - old) for each rule, cell(p) letter(x) for the
    tape, mq with the start state under key(START).  Then two per step:

        look     flag, key(q, x): state and letter read; dp: how the head's position changed
        act      flag, cell(p), letter: what is written there; mq: where to go and in which
                 state; N: how the letters left of, under and right of the head changed

    so that the sums of dp and N are the position and the neighbourhood of the head: two
    registers.  Two tokens per step, 2 P + 4 A + Q A + 3 Q + 5 coordinates, 3 Q + 5 heads.
    """
    schema = TuringEncoding(n_states, n_letters, n_cells).schema
    flag, cell, dp, letter = schema.flag, schema.cell, schema.dp, schema.letter
    N, key, mq = schema.N, schema.key, schema.mq
    p, q, r, m, x, y = variables("p q r m x y")
    found = [mq(m, r) << mq(m, r), letter(x) << letter(x), N("0", x) << letter(x)]
    place = [cell(p) << dp(p), flag() << dp(p)]
    going_on = (Unequal(r, "HALT"),)
    instructions: list[Instruction] = [
        Lookup(found, match=key(q, y), query=key(q, y)),
        Lookup(found, match=key("START"), query=key("START")),
        Register(place, flag=flag(), given=key(q, y)),
        Register(place, flag=flag(), given=key("START")),
    ]
    for name, step in MOVES.items():
        move = [dp(p + step) << dp(p), -(dp(p) << dp(p)), flag() << dp(p)]
        instructions += [
            Lookup(N(name, x) << letter(x), match=cell(p + step), query=dp(p)),
            Register(key(r, x) << N(name, x), flag=flag(), given=mq(name, r)),
            Register(move, flag=flag(), given=mq(name, r), where=going_on),
        ]
    return Program(schema, tuple(instructions), "universal Turing machine")
