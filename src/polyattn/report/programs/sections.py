"""The sections of a page about a program: what it is, its terms, its machine, and a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from polyattn.errors import InvalidType, require_integer
from polyattn.programs import Compiled, Learned, Program
from polyattn.programs import compile as compile_program
from polyattn.programs.certificates import ProgramCertificate
from polyattn.programs.machines import NamedMachine
from polyattn.report.page import Section, fill
from polyattn.report.programs import described
from polyattn.report.programs.film import Film
from polyattn.report.programs.filming import film as make_film
from polyattn.report.programs.script import player_script

# More steps make a page of many megabytes that nobody clicks through.
MOST_STEPS = 2000

# So many steps stand in a table, for paper and for readers without scripts.
LISTED = 12

# More terms than these stand behind a click.
SHORT_PROGRAM = 40

_HERE = "polyattn.report.programs"


def program_sections(
    program: Program | Compiled | Learned,
    machine: Any = None,
    inputs: Any = None,
    max_steps: int = MOST_STEPS,
    certificate: ProgramCertificate | None = None,
) -> tuple[list[Section], str]:
    """The sections of a page about a program, and the script that plays its run.

    Parameters
    ----------
    program : Program, Compiled or Learned
        A program that is not compiled yet is compiled.
    machine : NamedMachine, TuringMachine, DFA, or what else the program runs
        The table of an associative memory.  Without it a random one is run; a program without
        an encoding has none.
    inputs : str, list of int, or what else the program takes
        The tape or word, as a text by the names of letters or as a list of their numbers; the key
        of a memory; the prompt, a list of tokens, of a program without an encoding.  Without it
        the machine's own input is taken, or a blank tape, or a random word.
    max_steps : int
        The longest run of a Turing machine, and the most steps that the page shows.
    certificate : ProgramCertificate
        What ``learned.certify(...)`` gave.  Without it the certificate of the training traces is
        shown, but for rules only if it is there already: it can take minutes.

    Cost: that of running the layer twice; about 300 bytes of page for each step.
    """
    require_integer("max_steps", max_steps)
    instructions: tuple[Any, ...] = ()
    if isinstance(program, Program):
        instructions, program = program.instructions, compile_program(program)
    if not isinstance(program, Compiled | Learned):
        raise InvalidType(
            "program must be a Program, Compiled or Learned of polyattn.programs; got "
            f"{type(program).__name__}."
        )
    film, named = make_film(program, machine, inputs, max_steps)
    sections = [_about(program, certificate), _printed(program, instructions)]
    if named is not None:
        sections.append(_machine(named))
    if film is None:
        return sections, ""
    return [*sections, _run(film), _listed(film)], player_script(film)


def _about(program: Compiled | Learned, certificate: ProgramCertificate | None) -> Section:
    learned = program if isinstance(program, Learned) else None
    if learned is not None and certificate is None:
        certificate = described.certificate_of(learned)
    body = fill(
        "about", _HERE, name=getattr(program, "name", "learned program"), learned=learned,
        certificate=certificate,
        facts=described.facts_of(program), attributes=described.attributes_of(program),
    )  # fmt: skip
    return Section("What the program is", body)


def _printed(program: Compiled | Learned, instructions: Sequence[Any]) -> Section:
    terms = program.terms
    shown = [str(term) for term in terms[: described.MOST_TERMS]]
    body = fill(
        "terms", _HERE, instructions=[str(each) for each in instructions], terms=shown,
        n_terms=len(terms), short=SHORT_PROGRAM,
    )  # fmt: skip
    return Section("The program, term by term", body)


def _machine(named: NamedMachine) -> Section:
    table = described.machine_table(named)
    return Section("The machine", fill("machine", _HERE, named=named, table=table))


def _run(film: Film) -> Section:
    return Section("A run, step by step", fill("run", _HERE, film=film))


def _listed(film: Film) -> Section:
    lines = list(islice(film.lines(), LISTED))
    *_, end = film.lines()
    title = "All steps" if len(film.frames) <= LISTED else "The first steps"
    body = fill("listed", _HERE, film=film, lines=lines, end=end)
    return Section(title, body)
