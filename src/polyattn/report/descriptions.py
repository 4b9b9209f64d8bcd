"""Descriptions of things that do not describe themselves yet."""

from __future__ import annotations

from typing import Any

from polyattn.display import Described, Description
from polyattn.programs import Compiled, Learned, Program
from polyattn.programs.certificates.certificate import SATURATED, ProgramCertificate
from polyattn.quoting import counted

PROGRAM_TITLE = "A program as a layer of attention"


def describe(thing: Any) -> Description:
    """What the thing says of itself, or what is to be said of it."""
    if isinstance(thing, Described):
        return thing.describe()
    for kind, made in _MADE.items():
        if isinstance(thing, kind):
            return made(thing)
    return Description(type(thing).__name__, repr(thing))


def _learned(program: Learned) -> Description:
    size = f"tokens of {counted(program.schema.n_dims, 'coordinate')}"
    about = f"Learned from {counted(program.n_traces, 'trace')}, {size}"
    facts = {"n_dims": program.n_dims, "n_traces": program.n_traces, "n_rows": program.n_rows}
    return _of_outcome(PROGRAM_TITLE, about, program, program.succeeded, facts)


def _program(program: Program) -> Description:
    lines = tuple(map(str, program.instructions))
    facts = {"n_dims": program.schema.n_dims, "instructions": len(lines)}
    return Description(PROGRAM_TITLE, _named(program), facts=facts, lines=lines)


def _compiled(program: Compiled) -> Description:
    facts: dict[str, Any] = {"n_dims": program.n_dims, "terms": len(program.terms)}
    # Heads are assembled on first use.
    if "heads" in vars(program):
        facts["n_heads"] = program.n_heads
    lines = tuple(map(str, program.terms))
    return Description(PROGRAM_TITLE, _named(program), facts=facts, lines=lines)


def _program_certificate(certificate: ProgramCertificate) -> Description:
    names = ("verdict", "proved", "arithmetic", "rank")
    facts = {name: getattr(certificate, name) for name in names}
    doubts = () if certificate.verdict == SATURATED else (certificate.sentence,)
    return Description(
        "A certificate", f"{counted(certificate.n_traces, 'trace')}", certificate.sentence, doubts,
        facts,
    )  # fmt: skip


def _of_outcome(
    title: str, about: str, found: Any, good: bool, facts: dict[str, Any]
) -> Description:
    doubts = () if good else (str(found.outcome),)
    return Description(title, about, str(found.outcome), doubts, facts)


def _named(program: Program | Compiled) -> str:
    size = f"tokens of {counted(program.schema.n_dims, 'coordinate')}"
    return f"{program.name[:1].upper()}{program.name[1:]}, {size}"


_MADE: dict[type, Any] = {
    Program: _program,
    Compiled: _compiled,
    Learned: _learned,
    ProgramCertificate: _program_certificate,
}
