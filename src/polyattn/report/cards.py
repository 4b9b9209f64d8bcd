"""Cards: what notebooks show of a thing.  Made from what is known; nothing is computed for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from polyattn.auditing import Audit
from polyattn.certify import Certificate
from polyattn.certify.finding import UNDECIDED
from polyattn.fitting.result import FitResult
from polyattn.model.layer import AttentionLayer
from polyattn.programs import Compiled, Learned, Program
from polyattn.programs.certificates import SATURATED, ProgramCertificate
from polyattn.report.page import fill
from polyattn.report.statement import count
from polyattn.softmax import LearnedSoftmax, QueryResult

# Layers up to this size are shown number by number, and programs up to so many terms.
SHOWN_DIMS, SHOWN_HEADS, SHOWN_TERMS = 8, 4, 12


def card(thing: Any) -> Markup:
    """A small piece of HTML: a heading, a sentence, a few figures."""
    for kind, describe in _CARDS.items():
        if isinstance(thing, kind):
            content: dict[str, Any] = {"doubt": False, "facts": {}, "heads": [], "lines": []}
            return fill("card", kind=type(thing).__name__, **content | describe(thing))
    return Markup("<pre>{}</pre>").format(repr(thing))


def _layer(layer: AttentionLayer) -> dict[str, Any]:
    sizes = f"{count(layer.n_dims, 'coordinate')} to {count(layer.n_outputs, 'output')}"
    sentence = f"{count(layer.n_heads, 'head')}, {sizes}, mode {layer.mode}"
    sentence += ", with a constant" if layer.bias else ""
    width = max(layer.attn.shape[1], layer.n_outputs)
    heads = []
    if layer.n_heads <= SHOWN_HEADS and width <= SHOWN_DIMS:
        heads = [
            {"attn": _cells(attn.tolist()), "value": _cells(value.tolist())}
            for attn, value in zip(layer.attn, layer.value, strict=True)
        ]
    return {"sentence": sentence, "heads": heads}


def _fit(result: FitResult) -> dict[str, Any]:
    rank = None if result.rank is None else f"{result.rank:,} of {result.n_features:,}"
    # The search for heads starts on first use; a card is none.
    known = result.known_heads or vars(result).get("heads")
    return {
        "sentence": str(result.outcome),
        "doubt": result.outcome.name in ("minimum_norm", "iterative"),
        "facts": {
            "risk": result.risk,
            "rank": rank,
            "ridge": result.ridge,
            "solver": result.solver,
            "heads": "looked for when layer is asked for" if known is None else known.n_heads,
        },
    }


def _certificate(certificate: Certificate) -> dict[str, Any]:
    return {
        "sentence": certificate.sentence,
        "doubt": not certificate.identifiable,
        "facts": {
            "domain": str(certificate.domain),
            "on all real inputs": certificate.verdict_on_real_inputs.replace("_", " "),
            "smallest eigenvalue": certificate.lambda_min,
        },
    }


def _audit(found: Audit) -> dict[str, Any]:
    facts = {"risk": found.risk, "least risk": found.optimal_risk, "gap": found.gap}
    return {
        "sentence": found.sentence,
        "doubt": not found.consistent or found.outcome == UNDECIDED,
        "facts": facts | {"distance": found.distance},
    }


def _learned_softmax(found: LearnedSoftmax) -> dict[str, Any]:
    facts = {"heads": found.n_heads, "error on held-out examples": found.validation_error}
    return {
        "sentence": str(found.outcome),
        "doubt": not found.recovered,
        "facts": facts | {"noise": found.noise, "road": found.method},
    }


def _queries(found: QueryResult) -> dict[str, Any]:
    facts = {"heads": found.n_heads, "sequences asked for": found.n_queries}
    return {
        "sentence": str(found.outcome),
        "doubt": not found.recovered,
        "facts": facts | {"error on held-out sequences": found.validation_error},
    }


def _program(program: Program) -> dict[str, Any]:
    facts = {"coordinates": program.schema.n_dims, "instructions": len(program.instructions)}
    lines = _cut([str(instruction) for instruction in program.instructions], "instructions")
    return {"sentence": program.name, "facts": facts, "lines": lines}


def _program_certificate(certificate: ProgramCertificate) -> dict[str, Any]:
    return {
        "sentence": certificate.sentence,
        "doubt": certificate.verdict != SATURATED,
        "facts": {
            "verdict": certificate.verdict.replace("_", " "),
            "proved": certificate.proved,
            "arithmetic": certificate.arithmetic,
            "rank": certificate.rank,
        },
    }


def _compiled(program: Compiled) -> dict[str, Any]:
    terms = _cut([str(term) for term in program.terms], "terms")
    facts: dict[str, Any] = {"coordinates": program.n_dims, "terms": len(program.terms)}
    # Heads are assembled on first use.
    if "heads" in vars(program):
        facts["heads"] = program.n_heads
    return {"sentence": program.name, "facts": facts, "lines": terms}


def _learned(program: Learned) -> dict[str, Any]:
    return {
        "sentence": str(program.outcome),
        "doubt": not program.succeeded,
        "facts": {
            "coordinates": program.n_dims,
            "traces": program.n_traces,
            "rows": program.n_rows,
        },
    }


def _cut(lines: list[str], noun: str) -> list[str]:
    """The first lines, and how many there are more."""
    if len(lines) <= SHOWN_TERMS:
        return lines
    return [*lines[:SHOWN_TERMS], f"... {len(lines) - SHOWN_TERMS:,} {noun} more"]


def _cells(matrix: list[list[float]]) -> list[list[tuple[float, str]]]:
    """Entries with a colour behind them: warm if positive, cool if negative, strong if large."""
    largest = max((abs(entry) for row in matrix for entry in row), default=0.0) or 1.0

    def colour(entry: float) -> str:
        tone = "217, 105, 43" if entry >= 0 else "70, 120, 214"
        return f"rgba({tone}, {0.75 * abs(entry / largest):.2f})"

    return [[(entry, colour(entry)) for entry in row] for row in matrix]


_CARDS: dict[type, Callable[[Any], dict[str, Any]]] = {
    AttentionLayer: _layer,
    FitResult: _fit,
    Certificate: _certificate,
    Audit: _audit,
    LearnedSoftmax: _learned_softmax,
    QueryResult: _queries,
    Program: _program,
    Compiled: _compiled,
    Learned: _learned,
    ProgramCertificate: _program_certificate,
}
