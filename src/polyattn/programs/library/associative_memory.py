"""Associative memory: one lookup, one head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from polyattn.errors import InvalidInput, InvalidType
from polyattn.programs.language.attributes import Attribute, variables
from polyattn.programs.language.instructions import Lookup
from polyattn.programs.language.program import Program
from polyattn.programs.language.schema import Arguments, Schema, Task
from polyattn.programs.language.sorts import symbols
from polyattn.programs.library.runs import LibraryEncoding, PlannedRun, held
from polyattn.programs.machines.automata import check_letters
from polyattn.programs.running.shown import ShownRun, WatchedRun


def associative_memory(n_keys: int, n_values: int) -> Program:
    """Stores pairs and answers for a key: ``run({key: value, ...}, key)`` gives the value.

    Tokens: (key, value) for each pair, then the key that is asked for; out comes the answer.
    """
    schema = MemoryEncoding(n_keys, n_values).schema
    k, v = variables("k v")
    lookup = Lookup(schema.out(v) << schema.value(v), match=schema.key(k), query=schema.key(k))
    return Program(schema, (lookup,), "associative memory")


@dataclass(frozen=True)
class MemoryEncoding(LibraryEncoding):
    """Pairs of keys and values as tokens."""

    name = "associative_memory"

    n_keys: int
    n_values: int

    @cached_property
    def schema(self) -> Schema:
        key, value = symbols("key", self.n_keys), symbols("value", self.n_values)
        out = Attribute("out", (value,))
        attributes = (Attribute("key", (key,)), Attribute("value", (value,)), out)
        return Schema(attributes, stop=(out.any,), encoding=self)

    def task(self, table: Mapping[int, int], key: int) -> Task:
        _require_table(table)
        check_letters(table, self.n_keys, "keys")
        check_letters(table.values(), self.n_values, "values")
        check_letters([key], self.n_keys, "key")
        if key not in table:
            raise InvalidInput(f"key {key!r} is not in the table; it has {sorted(table)}.")
        prompt = [self.schema.token(key=each, value=value) for each, value in table.items()]
        prompt.append(self.schema.token(key=key))
        return Task(prompt, limit=1, read=lambda found: int(held(found.tokens[0], "out", 0)[0]))

    def sample(self, rng: np.random.Generator, machine: Any = None, given: Any = None) -> Arguments:
        """A random table of random size, and a random key of it."""
        if machine is None:
            keys = rng.permutation(self.n_keys)[: rng.integers(1, self.n_keys + 1)].tolist()
            if given is not None and given not in keys:
                keys[0] = given
            values = rng.integers(self.n_values, size=len(keys)).tolist()
            machine = dict(zip(keys, values, strict=True))
        _require_table(machine)
        key = int(rng.choice(sorted(machine))) if given is None else given
        return (machine, key), {}

    def everything(self) -> Iterator[tuple[Any, ...]]:
        for values in product(range(-1, self.n_values), repeat=self.n_keys):
            table = {key: value for key, value in enumerate(values) if value >= 0}
            for key in table:
                yield table, key

    def plan_run(self, machine: Any, given: Any, max_steps: int) -> PlannedRun:
        key = int(given) if isinstance(given, str) and given.isdecimal() else given
        (table, key), _ = self.sample(np.random.default_rng(0), machine, key)
        task = self.task(table, key)

        def show(watched: WatchedRun, answer: int, n_shown: int) -> ShownRun:
            said = f"Asked for key {key}, the memory answers {answer}; the table says {table[key]}."
            return watched.by_tokens(n_shown, [said], answer == table[key], "table itself", answer)

        task = replace(task, limit=min(task.limit, max_steps))
        return PlannedRun(task, show, drawn=(machine is None, given is None))


def _require_table(table: object) -> None:
    if not isinstance(table, Mapping):
        raise InvalidType(f"table must be a mapping of keys to values; got {table!r}.")
    if not table:
        raise InvalidInput("table must hold at least one key; got none.")
