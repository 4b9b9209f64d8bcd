"""The sections of a page about a program: what it is, its terms, its machine, and a run."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import islice
from typing import Any

from polyattn.display import figure
from polyattn.errors import InvalidType, require_integer
from polyattn.programs import Compiled, Learned, Program
from polyattn.programs import compile as compile_program
from polyattn.programs.certificates import ProgramCertificate
from polyattn.programs.learning import LearnedCoefficients, LearnedRules
from polyattn.programs.library import show_run
from polyattn.programs.machines.files import table_of
from polyattn.programs.running.shown import ShownRun
from polyattn.report.page import Section, fill, statement

# More steps make a page of many megabytes that nobody clicks through.
MOST_STEPS = 2000

# So many steps stand in a table, for paper and for readers without scripts.
LISTED = 12

# Longer programs are cut; learned layers can have a term for each of a million coefficients.
MOST_TERMS = 200

# More terms than these stand behind a click.
SHORT_PROGRAM = 40


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
    run = show_run(program, machine, inputs, max_steps)
    sections = [_about(program, certificate)]
    terms = fill(
        "programs/terms", instructions=[str(each) for each in instructions],
        terms=[str(term) for term in program.terms[:MOST_TERMS]], n_terms=len(program.terms),
        short=SHORT_PROGRAM,
    )  # fmt: skip
    sections.append(Section("The program, term by term", terms))
    if run is None:
        return sections, ""
    if run.named is not None:
        machine_body = fill("programs/machine", named=run.named, table=table_of(run.named))
        sections.append(Section("The machine", machine_body))
    sections.append(Section("A run, step by step", fill("programs/run", run=run)))
    lines = list(islice(run.listed(), LISTED))
    *_, end = run.listed()
    title = "All steps" if len(run.steps) <= LISTED else "The first steps"
    sections.append(Section(title, fill("programs/listed", run=run, lines=lines, end=end)))
    return sections, player_script(run)


def program_certificate_page(certificate: ProgramCertificate, *_: object) -> list[Section]:
    """The sections of a page about a program certificate."""
    title, claim = "What the traces determine", certificate.sentence
    facts = {name: figure(value) for name, value in certificate.describe().table().items()}
    meaning = (
        "Inside the span of the training rows all layers of the learned kind that are right on "
        "these rows agree: there the traces determine what the program does."
    )
    doubt = not certificate.outcome.ok
    return [statement(title, claim, doubt=doubt, facts=facts, notes=[meaning])]


def player_script(run: ShownRun) -> str:
    """JavaScript that shows a run step by step; nothing in it can end the script element.

    Text is ASCII without ``<``: no ``</script>`` or ``<!--``, whatever states are called, and no
    line ends that a browser would change before it compares the digest of the page's policy.
    """
    player = files("polyattn.report").joinpath("player.js").read_text(encoding="utf-8")
    data = json.dumps(run.to_dict(), separators=(",", ":"), allow_nan=False)
    harmless = data.replace("<", "\\u003c")
    return f"{player}play({harmless});\n"


def _about(program: Compiled | Learned, certificate: ProgramCertificate | None) -> Section:
    """What a program is: its figures, what its tokens can hold, and what was certified."""
    learned = program if isinstance(program, Learned) else None
    compiled = program.compiled if isinstance(program, LearnedRules) else program
    sizes = program.schema.encoding.sizes if program.schema.encoding else {}
    facts: dict[str, Any] = {
        name.replace("_", " ").replace("n ", "", 1): size
        for name, size in sizes.items()
        if isinstance(size, int)
    }
    facts["coordinates of a token, d"] = program.n_dims
    if isinstance(compiled, Compiled):
        facts["heads, H"] = compiled.n_heads
    if learned is not None:
        facts["learned from"] = f"{learned.n_traces:,} traces, {learned.n_rows:,} tokens to predict"
        facts["what was learned"] = learned.about
        # What the training traces say by themselves, unless that takes minutes to find out.
        quick = isinstance(learned, LearnedCoefficients) or "certificate" in vars(learned)
        if certificate is None and quick:
            certificate = learned.certificate
    attributes = [
        {
            "name": str(each),
            "values": "; ".join([*map(str, each.sorts), *each.whole]) or "holds or not",
            "n_values": len(each.values),
            "rounding": each.rounding.replace("_", "-"),
        }
        for each in program.schema.attributes
    ]
    body = fill(
        "programs/about", name=getattr(program, "name", "learned program"), learned=learned,
        certificate=certificate, facts=facts, attributes=attributes,
    )  # fmt: skip
    return Section("What the program is", body)
