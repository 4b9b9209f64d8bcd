"""Universal machines written down by hand: schemas, random machines and their traces.

Independent of the library's own programs: a second transcription of the same constructions.
"""

from itertools import product

import numpy as np

from polyattn.programs.language.attributes import INTEGER, Attribute
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import circle, line, names, symbols
from polyattn.programs.traces import Trace

HALT = -1


def dfa_schema(n_states, n_letters, length):
    """The one-hot universal DFA: px (t, x), cpos t, state q, key (q, x)."""
    state, letter = symbols("state", n_states, landmarks=1), symbols("letter", n_letters)
    return Schema(
        (
            Attribute("px", (line("time", length), letter)),
            Attribute("cpos", (line("time", length + 1),)),
            Attribute("state", (state,)),
            Attribute("key", (state, letter)),
        ),
        stop_without=("px", "key", "cpos"),
    )


def dfa_trace(schema, table, word):
    """The trace of one automaton, ``table`` (Q, V), on one word."""
    (n_states, n_letters), token = table.shape, schema.token
    prompt = [
        token(key=(q, x), state=int(table[q, x])) for q in range(n_states) for x in range(n_letters)
    ]
    prompt += [token(px=(t, int(x))) for t, x in enumerate(word)] + [token(cpos=0)]
    state, completion = 0, []
    for t, x in enumerate(map(int, word)):
        completion += [token(px=(t, x), state=state), token(key=(state, x), cpos=t + 1)]
        state = int(table[state, x])
    completion.append(token(state=state))
    return Trace(schema, schema.encode(prompt), schema.encode(completion), (table, tuple(word)))


def dfa_traces(sizes, n_traces, seed, mixed=False):
    """Random automata on random words, of full length or of mixed lengths."""
    n_states, n_letters, length = sizes
    schema, rng = dfa_schema(*sizes), np.random.default_rng(seed)
    for _ in range(n_traces):
        table = rng.integers(0, n_states, (n_states, n_letters))
        n = int(rng.integers(1, length + 1)) if mixed else length
        yield dfa_trace(schema, table, rng.integers(0, n_letters, n))


def all_dfa_traces(sizes):
    """All automata on all words of full length."""
    n_states, n_letters, length = sizes
    schema = dfa_schema(*sizes)
    for entries in product(range(n_states), repeat=n_states * n_letters):
        table = np.reshape(entries, (n_states, n_letters))
        for word in product(range(n_letters), repeat=length):
            yield dfa_trace(schema, table, word)


def turing_schema(n_states, n_letters, n_cells):
    """The universal Turing machine on a ring of cells."""
    state, letter = symbols("state", n_states, landmarks=1), symbols("letter", n_letters)
    cell = circle("cell", n_cells)
    offset, move = names("offset", "-1", "0", "+1"), names("move", "-1", "0", "+1")
    return Schema(
        (
            Attribute("flag"),
            Attribute("cell", (cell,)),
            Attribute("dp", (cell,), rounding=INTEGER),
            Attribute("letter", (letter,), rounding=INTEGER),
            Attribute("N", (offset, letter), rounding=INTEGER),
            Attribute("key", (state, letter), whole=("START",)),
            Attribute("mq", (move, state.plus("HALT"))),
        )
    )


def turing_trace(schema, rules, tape, position=0, state=0, n_steps=25):
    """The trace of ``rules`` {(q, a): (q', write, move)}, q' = HALT stops."""
    token, tape, n_cells = schema.token, [int(a) for a in tape], len(tape)
    prompt = [token(key="START", mq=("0", state))]
    prompt += [
        token(key=key, mq=_move_state(move, after), letter=_change(key[1], write))
        for key, (after, write, move) in rules.items()
    ]
    prompt += [token(cell=p, letter=a) for p, a in enumerate(tape)]
    prompt.append(token(flag=(), key="START", dp=position))
    view = _view(tape, position)
    completion = [token(flag=(), cell=position, mq=("0", state), N=view)]
    move = 0
    for _ in range(n_steps):
        before, position = position, (position + move) % n_cells
        read = tape[position]
        completion.append(token(flag=(), key=(state, read), dp=_change(before, position)))
        state, tape[position], move = rules[state, read]
        after = _view(tape, position)
        steps = {at: after.get(at, 0) - view.get(at, 0) for at in {*after, *view}}
        completion.append(
            token(
                flag=(), cell=position, letter=_change(read, tape[position]),
                mq=_move_state(move, state), N=steps,
            )
        )  # fmt: skip
        view = after
        if state == HALT:
            break
    return Trace(schema, schema.encode(prompt), schema.encode(completion), (rules, tuple(tape)))


def turing_traces(sizes, n_traces, seed, steps=(2, 25), halting=0.05):
    """Random machines on random tapes, with mixed numbers of steps."""
    n_states, n_letters, n_cells = sizes
    schema, rng = turing_schema(*sizes), np.random.default_rng(seed)
    for _ in range(n_traces):
        rules = {
            (q, a): (
                HALT if rng.random() < halting else int(rng.integers(n_states)),
                int(rng.integers(n_letters)),
                int(rng.integers(-1, 2)),
            )
            for q in range(n_states)
            for a in range(n_letters)
        }
        tape, n_steps = (
            rng.integers(0, n_letters, n_cells),
            int(rng.integers(steps[0], steps[1] + 1)),
        )
        start = int(rng.integers(n_cells)), int(rng.integers(n_states))
        yield turing_trace(schema, rules, tape, *start, n_steps)


#: The busy beaver of three states: 14 steps, six ones (Radó).
BUSY_BEAVER_3 = {
    (0, 0): (1, 1, 1), (0, 1): (HALT, 1, 1),
    (1, 0): (2, 0, 1), (1, 1): (1, 1, 1),
    (2, 0): (2, 1, -1), (2, 1): (0, 1, -1),
}  # fmt: skip


def _view(tape, position):
    n_cells = len(tape)
    return {
        (name, tape[(position + offset) % n_cells]): 1
        for name, offset in (("-1", -1), ("0", 0), ("+1", 1))
    }


def _change(before, after):
    return {} if before == after else {before: -1, after: 1}


def _move_state(move, state):
    return (f"{move:+d}" if move else "0", "HALT" if state == HALT else state)
