"""One table of programs, many meanings: all of them must give the same answers.

Each case draws machines and inputs of its own, knows the size of the layer by the formulas of
the constructions, and has a truth that shares nothing with polyattn: automata-lib, a ring of
cells simulated here, a dictionary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from automata.fa import dfa as fa
from automata.tm import dtm as tm

import polyattn as pa
from polyattn.model import LinearAttention
from polyattn.programs.language.program import Interpreter
from polyattn.programs.language.schema import decode, run_encoded

P = pa.programs
HALT = -1


@dataclass(frozen=True)
class Case:
    """A program, machines and inputs for it, and what must come out.

    draw(rng) gives (arguments, options) of ``run``; truth(*arguments, **options) the answer.
    """

    name: str
    program: Any
    draw: Callable[[np.random.Generator], tuple[tuple[Any, ...], dict[str, Any]]]
    truth: Callable[..., Any]
    n_dims: int
    n_heads: int

    @cached_property
    def compiled(self):
        return P.compile(self.program)

    def drawn(self, n_machines, seed=0):
        rng = np.random.default_rng([seed, *map(ord, self.name)])
        return [self.draw(rng) for _ in range(n_machines)]

    def __str__(self):
        return self.name


# ---------------------------------------------------------------- meanings


class LayerAlone:
    """Predicts by ``layer(X)`` on all tokens so far: nothing of the runner is used."""

    def __init__(self, compiled):
        self.schema, self.layer = compiled.schema, compiled.layer
        self.X = np.zeros((0, compiled.n_dims))

    def start(self, prompt):
        self.X = self.schema.encode(prompt).astype(float)

    def next_token(self):
        output = self.layer(self.X)
        token = self.schema.round(output)
        # Not near a token: the token itself.
        np.testing.assert_array_equal(output, token)
        self.X = np.vstack([self.X, token])
        return self.schema.decode(token)


def by_layer(case, arguments, options):
    return run_encoded(case.program.schema, LayerAlone(case.compiled), arguments, options)


def history(program, arguments, options):
    """Prompt and completion as arrays, by the interpreter."""
    task = program.schema.encoding.task(*arguments, **options)
    found = decode(program.schema, Interpreter(program), task.prompt, task.limit)
    return program.schema.encode(task.prompt), program.schema.encode(found.tokens)


def outputs_along(layer, prompt, completion):
    """What the layer gives for every token of a completion from all tokens before it (m, d)."""
    causal = LinearAttention(layer.attn, layer.value, mode="causal")
    tokens = np.concatenate([prompt, completion]).astype(float)
    return causal(tokens)[len(prompt) - 1 : -1]


# ---------------------------------------------------------------- truths


def oracle_states(dfa, word):
    """The states after each letter, by automata-lib."""
    letters = "".join(chr(ord("a") + x) for x in word)
    oracle = fa.DFA(
        states={*range(dfa.n_states)},
        input_symbols={chr(ord("a") + x) for x in range(dfa.n_letters)},
        transitions={
            q: {chr(ord("a") + x): int(r) for x, r in enumerate(row)}
            for q, row in enumerate(dfa.transitions.tolist())
        },
        initial_state=0,
        final_states=set(),
    )
    return list(oracle.read_input_stepwise(letters, ignore_rejection=True))[1:]


def oracle_configurations(machine, tape, n_steps):
    """States and tapes of automata-lib's endless tape, before every step and after the last."""
    moves = {-1: "L", 0: "N", 1: "R"}
    transitions = {str(q): {} for q in range(machine.n_states)}
    for (q, x), (after, write, move) in machine.rules.items():
        halts = after == HALT
        transitions[str(q)][str(x)] = ("halt" if halts else str(after), str(write), moves[move])
    letters = {str(x) for x in range(machine.n_letters)}
    oracle = tm.DTM(
        states={"halt", *transitions},
        input_symbols=(letters - {"0"}) or {"unused"},
        tape_symbols=letters | {"unused"},
        transitions=transitions,
        initial_state="0",
        blank_symbol="0",
        final_states={"halt"},
    )
    # The blank is no input symbol there, but a tape may hold it.
    return [*islice(oracle.read_input_stepwise("".join(map(str, tape))), n_steps + 1)]


def ring(machine, tape, n_cells, max_steps, position=0, state=0):
    """A run on a circular tape by another hand: the head travels without turns.

    Gives (tape, state, position, steps, wrapped_at).  Every cell belongs to the place on an
    endless tape at which it was written or visited first; when the head comes to it from another
    place, it has wrapped.
    """
    cells = dict(enumerate([*tape, *[0] * (n_cells - len(tape))]))
    owner = {cell: cell for cell, letter in cells.items() if letter} | {position: position}
    steps, travelled, wrapped_at = [], position, None
    while len(steps) < max_steps and state != HALT:
        at = travelled % n_cells
        after, write, move = machine.rules[state, cells[at]]
        steps.append((state, at, cells[at], write, move, after))
        cells[at], state, travelled = write, after, travelled + move
        if wrapped_at is None and owner.setdefault(travelled % n_cells, travelled) != travelled:
            wrapped_at = len(steps)
    return [cells[p] for p in range(n_cells)], state, travelled % n_cells, steps, wrapped_at


def facts(run):
    """A TuringRun as plain data, in the form of ``ring``."""
    assert run.steps == len(run.history)
    assert run.halted == (run.state == HALT)
    return run.tape, run.state, run.position, [tuple(step) for step in run.history], run.wrapped_at


def plain(answer):
    """An answer as plain data, to be compared with a truth."""
    return facts(answer) if isinstance(answer, P.TuringRun) else answer


# ---------------------------------------------------------------- random machines


def random_dfa(rng, n_states, n_letters):
    return P.DFA(rng.integers(n_states, size=(n_states, n_letters)))


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
    return P.TuringMachine(rules, n_states, n_letters)


def smaller(rng, size):
    """Mostly the size itself, sometimes less: a machine need not fill its program."""
    return size if rng.random() < 0.7 else int(rng.integers(1, size + 1))


# ---------------------------------------------------------------- the table


def memory_case(n_keys, n_values):
    def draw(rng):
        keys = rng.permutation(n_keys)[: rng.integers(1, n_keys + 1)].tolist()
        table = {key: int(rng.integers(n_values)) for key in keys}
        return (table, int(rng.choice(keys))), {}

    return Case(
        f"associative memory K={n_keys} V={n_values}",
        P.associative_memory(n_keys, n_values),
        draw,
        lambda table, key: table[key],
        n_dims=n_keys + 2 * n_values,
        n_heads=1,
    )


def fixed_case(n_states, n_letters, max_length, seed):
    # States with the same row would share their heads: the formula is for those that differ.
    rng = np.random.default_rng(seed)
    while (
        len(np.unique((dfa := random_dfa(rng, n_states, n_letters)).transitions, axis=0)) < n_states
    ):
        pass

    def draw(rng):
        return (rng.integers(n_letters, size=rng.integers(max_length + 1)).tolist(),), {}

    return Case(
        f"fixed DFA Q={n_states} V={n_letters} L={max_length} #{seed}",
        P.fixed_dfa(dfa, max_length),
        draw,
        lambda word: oracle_states(dfa, word),
        n_dims=max_length + n_letters + (max_length + 1) * n_states,
        n_heads=max_length * n_states,
    )


def dfa_case(n_states, n_letters, max_length, style):
    def draw(rng):
        dfa = random_dfa(rng, smaller(rng, n_states), smaller(rng, n_letters))
        length = rng.integers(max_length + 1)
        return (dfa, rng.integers(dfa.n_letters, size=length).tolist()), {}

    Q, V, L = n_states, n_letters, max_length
    one_hot = style == "one_hot"
    return Case(
        f"universal DFA {style} Q={Q} V={V} L={L}",
        P.universal_dfa(Q, V, L, style=style),
        draw,
        oracle_states,
        n_dims=L * V + L + 1 + Q + Q * V if one_hot else L + 4 + 2 * V + Q * Q + Q,
        n_heads=V + 3 if one_hot else Q + 3,
    )


def turing_case(n_states, n_letters, n_cells, steps=30):
    def draw(rng):
        machine = random_turing(rng, smaller(rng, n_states), smaller(rng, n_letters))
        tape = rng.integers(machine.n_letters, size=rng.integers(n_cells + 1)).tolist()
        options = {
            "max_steps": int(rng.integers(steps + 1)),
            "position": int(rng.integers(n_cells)),
            "state": int(rng.integers(machine.n_states)),
        }
        return (machine, tape), options

    Q, A, C = n_states, n_letters, n_cells
    return Case(
        f"universal Turing machine Q={Q} A={A} P={C}",
        P.universal_turing_machine(Q, A, C),
        draw,
        lambda machine, tape, **options: ring(machine, tape, C, **options),
        n_dims=2 * C + 4 * A + Q * A + 3 * Q + 5,
        # On two cells, left and right of the head is the same cell: the two heads that look
        # there match the same attributes, and are one.
        n_heads=3 * Q + 5 - (C == 2),
    )


def rewriting_case(n_states, n_letters, n_cells, n_steps):
    other = turing_case(n_states, n_letters, n_cells, n_steps)
    Q, A, C, S = n_states, n_letters, n_cells, n_steps
    block = A * A + A * Q + 13 * A + 4 * Q + 15
    return Case(
        f"rewriting Turing machine Q={Q} A={A} P={C} S={S}",
        P.tape_rewriting_turing_machine(Q, A, C, S),
        other.draw,
        other.truth,
        n_dims=C * S * block + C * (S + 1) + A * A + A * Q + 7 * A + 2 * Q + 4,
        n_heads=C * S * (A + 12) + 4,
    )


CASES = [
    *(memory_case(*sizes) for sizes in [(1, 1), (1, 4), (4, 1), (8, 8), (30, 5)]),
    *(fixed_case(*sizes) for sizes in [(1, 1, 1, 0), (2, 2, 4, 0), (4, 3, 6, 0), (5, 4, 9, 1)]),
    *(
        dfa_case(*sizes, style)
        for style in ("registers", "one_hot")
        for sizes in [(1, 1, 1), (2, 2, 3), (1, 3, 4), (3, 1, 4), (4, 4, 4), (6, 3, 10)]
    ),
    *(turing_case(*sizes) for sizes in [(1, 1, 2), (2, 2, 2), (2, 2, 3), (2, 2, 8), (3, 2, 16)]),
    *(turing_case(*sizes) for sizes in [(4, 3, 6), (5, 4, 24)]),
    rewriting_case(1, 1, 3, 1),
]
