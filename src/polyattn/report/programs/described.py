"""What a program is, in words and figures: sizes, attributes, terms, what is known of it."""

from __future__ import annotations

from typing import Any

from polyattn.programs.certificates import ProgramCertificate
from polyattn.programs.compile import Compiled
from polyattn.programs.learning import Learned, LearnedCoefficients, LearnedRules
from polyattn.programs.machines import DFA, NamedMachine
from polyattn.programs.machines.format.content import content_of

# Longer programs are cut; learned layers can have a term for each of a million coefficients.
MOST_TERMS = 200


def facts_of(program: Compiled | Learned) -> dict[str, Any]:
    """The figures of a program, by the words that a page shows."""
    compiled = program.compiled if isinstance(program, LearnedRules) else program
    encoding = program.schema.encoding
    sizes = encoding.sizes if encoding else {}
    found: dict[str, Any] = {
        name.replace("_", " ").replace("n ", "", 1): size
        for name, size in sizes.items()
        if isinstance(size, int)
    }
    found["coordinates of a token, d"] = program.n_dims
    if isinstance(compiled, Compiled):
        found["heads, H"] = compiled.n_heads
    if isinstance(program, Learned):
        found["learned from"] = f"{program.n_traces:,} traces, {program.n_rows:,} tokens to predict"
        found["what was learned"] = program.about
    return found


def attributes_of(program: Compiled | Learned) -> list[dict[str, Any]]:
    """The attributes of tokens: name, values, coordinates, rounding."""
    return [
        {
            "name": str(each),
            "values": "; ".join([*map(str, each.sorts), *each.whole]) or "holds or not",
            "n_values": len(each.values),
            "rounding": each.rounding.replace("_", "-"),
        }
        for each in program.schema.attributes
    ]


def certificate_of(program: Learned) -> ProgramCertificate | None:
    """What the training traces say by themselves, unless that takes minutes to find out."""
    quick = isinstance(program, LearnedCoefficients) or "certificate" in vars(program)
    return program.certificate if quick else None


def machine_table(named: NamedMachine) -> list[dict[str, Any]]:
    """A row for each state: its name, what is special about it, and a rule for each letter."""
    content = content_of(named)
    rows = content.get("transitions") or content["rules"]
    found = []
    for number, (state, row) in enumerate(rows.items()):
        rules = [rule if isinstance(rule, str) else _rule(*rule) for rule in row.values()]
        found.append({"state": state, "remark": _remark(named, number), "rules": rules})
    return found


def _rule(after: str, write: str, move: str) -> str:
    return f"{write} {move} {after}"


def _remark(named: NamedMachine, number: int) -> str:
    accepts = isinstance(named.machine, DFA) and number in named.machine.accepting
    remarks = [word for word, holds in (("start", number == 0), ("accepting", accepts)) if holds]
    return ", ".join(remarks)
