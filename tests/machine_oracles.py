"""What machines do, by others: automata-lib, and a ring of cells simulated here."""

from dataclasses import dataclass
from itertools import islice

from automata.fa import dfa as fa
from automata.tm import dtm as tm

from polyattn.programs import DFA, TuringMachine

HALT, ACCEPT, REJECT = -1, -2, -3
ENDS = {HALT: "halt", ACCEPT: "yes", REJECT: "no"}


def dfa_states(dfa, word):
    """The states after each letter, by automata-lib."""
    letters = [chr(ord("a") + x) for x in range(dfa.n_letters)]
    rows = enumerate(dfa.transitions.tolist())
    oracle = fa.DFA(
        states={*range(dfa.n_states)},
        input_symbols=set(letters),
        transitions={q: dict(zip(letters, row, strict=True)) for q, row in rows},
        initial_state=0,
        final_states=set(),
    )
    text = "".join(letters[x] for x in word)
    return list(oracle.read_input_stepwise(text, ignore_rejection=True))[1:]


def endless(machine):
    """The machine of automata-lib on an endless tape; it accepts in the state ``yes``."""
    moves = {-1: "L", 0: "N", 1: "R"}
    table = {str(q): {} for q in range(machine.n_states)}
    for (q, x), (after, write, move) in machine.rules.items():
        table[str(q)][str(x)] = (ENDS.get(after, str(after)), str(write), moves[move])
    letters = {str(x) for x in range(machine.n_letters)}
    return tm.DTM(
        states={*table, *ENDS.values()},
        input_symbols=(letters - {"0"}) or {"unused"},
        tape_symbols=letters | {"unused"},
        transitions=table,
        initial_state="0",
        blank_symbol="0",
        final_states={"yes", "halt"},
    )


def configurations(machine, tape, n_steps):
    """States and endless tapes, before every step and after the last."""
    steps = endless(machine).read_input_stepwise("".join(map(str, tape)))
    return [*islice(steps, n_steps + 1)]


@dataclass(frozen=True)
class Ring:
    """A run on a circular tape, the head of which travels without turns.

    Every cell belongs to the place on an endless tape at which it was written or visited first;
    when the head comes to it from another place, it has wrapped.
    """

    facts: tuple  # tape, state, position, steps, wrapped_at

    @classmethod
    def run(cls, machine, tape, n_cells, max_steps=1000, position=0, state=0):
        cells = dict(enumerate([*tape, *[0] * (n_cells - len(tape))]))
        owner = {cell: cell for cell, letter in cells.items() if letter} | {position: position}
        steps, travelled, wrapped_at = [], position, None
        while len(steps) < max_steps and state >= 0:
            at = travelled % n_cells
            after, write, move = machine.rules[state, cells[at]]
            steps.append((state, at, cells[at], write, move, after))
            cells[at], state, travelled = write, after, travelled + move
            if wrapped_at is None and owner.setdefault(travelled % n_cells, travelled) != travelled:
                wrapped_at = len(steps)
        letters = [cells[p] for p in range(n_cells)]
        return cls((letters, state, travelled % n_cells, steps, wrapped_at))

    @classmethod
    def of(cls, run):
        """A TuringRun in the same form."""
        assert run.steps == len(run.history)
        assert run.halted == (run.state < 0)
        steps = [tuple(step) for step in run.history]
        return cls((run.tape, run.state, run.position, steps, run.wrapped_at))


def random_dfa(rng, n_states, n_letters):
    return DFA(rng.integers(n_states, size=(n_states, n_letters)))


def random_turing(rng, n_states, n_letters, halting=None):
    halting = rng.choice([0.0, 0.05, 0.3]) if halting is None else halting
    rules = {
        (q, x): (
            HALT if rng.random() < halting else int(rng.integers(n_states)),
            int(rng.integers(n_letters)),
            int(rng.choice([-1, -1, 0, 1, 1])),
        )
        for q in range(n_states)
        for x in range(n_letters)
    }
    return TuringMachine(rules, n_states, n_letters)
