"""The compiler: validate, then lower every term to heads and assemble them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from polyattn.display import Described, Description, ReportedProgram
from polyattn.errors import InvalidType
from polyattn.files.fields import any_object, entries, listed, text
from polyattn.files.records import Record
from polyattn.model import LinearAttention
from polyattn.programs.head_entries import HeadEntry, entries_of
from polyattn.programs.language.program import Program, program_description, validate
from polyattn.programs.language.schema import Schema, task_of
from polyattn.programs.language.terms import Term
from polyattn.programs.lowering import Head, assemble, lower, to_layer
from polyattn.programs.plain import plain_schema, plain_term, require_size, schema_from, terms_from
from polyattn.programs.running.engine import Engine, decode_batch
from polyattn.programs.running.runnable import Runnable

# What is in the schema and in the terms is checked where they are read.
FIELDS = entries({"name": text(1000), "schema": any_object, "terms": listed(any_object)})


@dataclass(frozen=True, eq=False)
class Compiled(ReportedProgram, Described, Runnable):
    """A program as one layer of linear attention, run autoregressively.

    terms : what the layer computes, product by product
    name : of the program
    """

    schema: Schema
    kind: ClassVar[str] = "program"

    terms: tuple[Term, ...] = field(repr=False)
    name: str = "program"

    @cached_property
    def heads(self) -> list[Head]:
        """The heads by their nonzero entries."""
        return assemble(head for term in self.terms for head in lower(term, self.schema))

    @property
    def n_heads(self) -> int:
        """H, the number of heads."""
        return len(self.heads)

    @property
    def entries(self) -> list[HeadEntry]:
        """The entries of all heads that are not zero, with the meaning of their coordinates."""
        return entries_of(self.heads, self.schema)

    @cached_property
    def layer(self) -> LinearAttention:
        """The layer: X (n, d), prompt and what followed, to the next token before rounding.

        It computes in float64: counts beyond 2^53 are rounded, which ``run`` never does.
        """
        return to_layer(self.heads, self.n_dims)

    def predictor(self) -> Engine:
        return self._engine.fresh()

    def run_batch(self, given: Sequence[tuple[Any, ...]], **options: Any) -> list[Any]:
        """Run many at once: ``run_batch([(dfa, word), ...])``; the results of ``run``."""
        tasks = [task_of(self.schema, each, options) for each in given]
        prompts, limits = [task.prompt for task in tasks], [task.limit for task in tasks]
        decoded = decode_batch(self.schema, self.heads, prompts, limits)
        return [task.read(each) for task, each in zip(tasks, decoded, strict=True)]

    @cached_property
    def _engine(self) -> Engine:
        return Engine(self.schema, self.heads)

    def describe(self) -> Description:
        facts: dict[str, Any] = {"n_dims": self.n_dims, "terms": len(self.terms)}
        # Heads are assembled on first use.
        if "heads" in vars(self):
            facts["n_heads"] = self.n_heads
        return program_description(self, facts, self.terms)

    def to_record(self) -> Record:
        """The content as plain data; InvalidInput if no file can hold so large a program."""
        require_size(self.schema, self.terms)
        content = {
            "name": self.name,
            "schema": plain_schema(self.schema),
            "terms": [plain_term(term) for term in self.terms],
        }
        return Record("program", {}, content)

    @classmethod
    def from_record(cls, record: Record) -> Compiled:
        """The inverse of ``to_record``."""
        entries({})(record.arrays, "arrays")
        FIELDS(record.metadata, "metadata")
        schema = schema_from(record.metadata["schema"])
        return cls(schema, terms_from(record.metadata["terms"], schema), record.metadata["name"])

    def __repr__(self) -> str:
        return f"Compiled({self.name}, {self.n_heads} heads, {self.n_dims} coordinates)"


def compile(program: Program) -> Compiled:  # noqa: A001 - programs are compiled; P.compile says it
    """One layer of linear attention that computes a program, token after token.

    Parameters
    ----------
    program : Program
        Of the library, or your own.

    Returns
    -------
    Compiled
        ``run`` runs it; ``layer`` is the LinearAttention in mode ``last``.

    Raises ProgramRefused with every reason if one layer cannot compute the program.

    Guarantee: ``run``, ``run_batch`` and ``decode`` give the tokens that exact sums of what the
    terms write give: counts and weights of any size, none is rounded (a token holds at most
    2^63 - 1; beyond that OutOfRange).  ``layer`` computes in float64: its outputs are exact while
    u w n m^3 <= 2^53, for n tokens that hold at most m, weights that add up to at most w for an
    output, and their common denominator u.  Under the assumptions that instructions state, and
    that the interpreter checks, that is what the program means.
    Cost: the number of nonzero entries of the heads.
    """
    if not isinstance(program, Program):
        raise InvalidType(f"compile takes a Program; got {type(program).__name__}.")
    validate(program)
    return Compiled(program.schema, tuple(program.terms()), program.name)
