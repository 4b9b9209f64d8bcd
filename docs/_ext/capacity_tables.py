"""Tables of capacity.md, from what ``benchmarks/capacity.py`` wrote and from the cost model.

``{capacity-time}`` and ``{capacity-memory}`` show fitted exponents beside the promised ones,
``{capacity-fits}`` whole fits beside their plans, ``{capacity-workers}`` the same data on several
processes, ``{capacity-conditions}`` with what all that was measured, and ``{capacity-constants}``
the constants of the cost model.
"""

import json
from pathlib import Path

from docutils import nodes
from plain_nodes import paragraph, table
from sphinx.util.docutils import SphinxDirective

FILE = "capacity/measured.json"
LETTERS = ("N", "n", "d", "e")

# What each constant of polyattn.solve.costs is, in the order of the page.
CONSTANTS = {
    "MULTIPLY_ADD": "seconds of a multiply-add in a large matrix product",
    "PAIRED": "paired sums: times as long",
    "DEFINITE": "definite equations: times as long",
    "ORTHOGONAL": "triangular factor of many rows: times as long",
    "SINGULAR": "singular values of few rows: times as long",
    "EIGENVALUES": "eigenvalues: times as long",
    "KERNEL": "kernel and its factor: times as long",
    "PASS": "a pass of the iteration: times as long",
    "TOKEN": "seconds to summarise a token",
    "TOKEN_PRODUCT": "and for each product of two of its numbers",
    "READ_BYTE": "seconds to read a byte",
    "SENT_BYTE": "seconds to send a byte to another machine",
    "MESSAGE": "seconds for a message",
    "MOST_STRETCHES": "parts of the data that are added up by themselves",
}


def time_rows(found):
    """Each step: its formula, and for each letter the exponent with the promised one."""
    return [
        [name, step["time"], *exponents(found, name, "seconds", LETTERS)]
        for name, step in found["steps"].items()
    ]


def memory_rows(found):
    """The same for memory, and how much it was at the largest of the sizes."""
    rows = []
    for name, step in found["steps"].items():
        cells = exponents(found, name, "megabytes", ("N", "d"))
        if any(cells):
            largest = max(p["megabytes"] for p in found["points"] if p["step"] == name)
            rows.append([name, step["memory"], *cells, f"{largest:,.0f} MB"])
    return rows


def exponents(found, name, quantity, letters):
    """Cells such as 0.98 (1.00); empty where nothing was compared."""
    known = {
        each["over"]: f"{each['exponent']:.2f} ({each['promised']:.2f})"
        for each in found["growth"]
        if (each["step"], each["quantity"]) == (name, quantity)
    }
    return [known.get(letter, "") for letter in letters]


def fit_rows(found):
    """Each fit: its shape, and what it took beside what was expected."""
    return [
        [
            fit["solver"],
            *(f"{fit[letter]:,}" for letter in LETTERS),
            f"{fit['seconds']:.2g} s",
            f"{fit['expected_seconds']:.2g} s",
            f"{fit['megabytes']:,.0f} MB",
            f"{fit['expected_megabytes']:,.0f} MB",
        ]
        for fit in found["fits"]
    ]


def worker_rows(found):
    """Each number of workers: processor seconds of the busiest, and seconds that passed."""
    alone = found["workers"][0]
    return [
        [
            str(each["workers"]),
            *(
                f"{each[name]:.1f} s ({alone[name] / each[name]:.2f}x)"
                for name in ("seconds", "wall_seconds")
            ),
        ]
        for each in found["workers"]
    ]


def conditions(found):
    """With what was measured, and how much times of the same thing differed."""
    around = ", ".join(f"{key} {value}" for key, value in found["surroundings"].items())
    spread = max(each["slowest"] / each["seconds"] for each in found["points"])
    rounds = f"the least of {found['rounds']} rounds" if found["rounds"] > 1 else "one round"
    return (
        f"One thread, {rounds}: {around}. The slowest run of a size took up to {spread:.1f} times "
        "as long as the fastest, which counts."
    )


def constant_rows():
    """Names, values and meanings; a constant without a meaning is an error."""
    from polyattn.solve import costs

    known = {name: value for name, value in vars(costs).items() if name.isupper()}
    odd = (set(known) ^ set(CONSTANTS)) - {"MAX_PASSES"}  # that of another module
    if odd:
        raise LookupError(f"constants of the cost model without a meaning, or gone: {odd}")
    return [[nodes.literal("", name), f"{known[name]:g}", text] for name, text in CONSTANTS.items()]


class FromMeasurements(SphinxDirective):
    """A part of the page that is made of measured.json."""

    def run(self):
        """The content of the subclass."""
        path = Path(self.env.srcdir) / FILE
        self.env.note_dependency(str(path))
        return [self.shown(json.loads(path.read_text(encoding="utf-8")))]


class Times(FromMeasurements):
    """Exponents of time."""

    def shown(self, found):
        """A table."""
        return table(["step", "grows as", *(f"over {x}" for x in LETTERS)], time_rows(found))


class Memory(FromMeasurements):
    """Exponents of memory."""

    def shown(self, found):
        """A table."""
        headings = ["step", "numbers", "over N", "over d", "at the largest size"]
        return table(headings, memory_rows(found))


class Fits(FromMeasurements):
    """Whole fits."""

    def shown(self, found):
        """A table."""
        headings = ["solver", *LETTERS, "measured", "expected", "memory", "expected"]
        return table(headings, fit_rows(found))


class Workers(FromMeasurements):
    """Several processes."""

    def shown(self, found):
        """A table."""
        return table(["workers", "busiest worker", "wall clock"], worker_rows(found))


class Conditions(FromMeasurements):
    """Machine, versions, spread."""

    def shown(self, found):
        """A paragraph."""
        return paragraph(conditions(found))


class Constants(SphinxDirective):
    """Those of the cost model, from the code."""

    def run(self):
        """A table."""
        return [table(["constant", "value", "what it is"], constant_rows())]


def setup(app):
    """Called by Sphinx."""
    app.add_directive("capacity-time", Times)
    app.add_directive("capacity-memory", Memory)
    app.add_directive("capacity-fits", Fits)
    app.add_directive("capacity-workers", Workers)
    app.add_directive("capacity-conditions", Conditions)
    app.add_directive("capacity-constants", Constants)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
