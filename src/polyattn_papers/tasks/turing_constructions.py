"""Two universal Turing machines in figures: the one that changes its tape, and the paper's.

``python -m polyattn_papers.tasks.turing_constructions`` prints the table of the derivations.
"""

from __future__ import annotations

from polyattn.programs import (
    Program,
    TuringMachine,
    compile,  # noqa: A004 - programs are compiled
    tape_rewriting_turing_machine,
    universal_turing_machine,
)
from polyattn.programs.language.schema import task_of
from polyattn_papers.reproduction import Row

#: States, letters, cells and steps.
SIZES = ((2, 2, 4, 4), (2, 2, 8, 4), (2, 2, 4, 8), (4, 2, 4, 4), (2, 4, 4, 4), (4, 4, 4, 4))


def compared(n_states: int, n_letters: int, n_cells: int, n_steps: int) -> Row:
    """Heads, coordinates and tokens of both constructions for a run of so many steps."""
    row: Row = {"Q": n_states, "A": n_letters, "P": n_cells, "S": n_steps}
    # A machine that does not end before the limit.
    pairs = [(q, x) for q in range(n_states) for x in range(n_letters)]
    walker = TuringMachine({(q, x): (q, x, 1) for q, x in pairs}, n_states, n_letters)
    programs = {
        "changes": universal_turing_machine(n_states, n_letters, n_cells),
        "rewrites": tape_rewriting_turing_machine(n_states, n_letters, n_cells, n_steps),
    }
    for name, program in programs.items():
        row |= {f"{name}: {what}": n for what, n in _figures(program, walker, n_steps).items()}
    return row


def _figures(program: Program, machine: TuringMachine, n_steps: int) -> dict[str, int]:
    compiled = compile(program)
    prompt = task_of(program.schema, (machine,), {"max_steps": n_steps}).prompt
    written = compiled.trace(machine, max_steps=n_steps).n_rows
    return {
        "heads": compiled.n_heads,
        "coordinates": compiled.n_dims,
        "prompt": len(prompt),
        "tokens": written,
    }


def as_table(rows: list[Row]) -> list[str]:
    """The lines of a table in Markdown."""
    lines = [f"| {' | '.join(rows[0])} |", "|" + "---|" * len(rows[0])]
    return lines + [f"| {' | '.join(f'{value:,}' for value in row.values())} |" for row in rows]


if __name__ == "__main__":
    print("\n".join(as_table([compared(*sizes) for sizes in SIZES])))  # noqa: T201
