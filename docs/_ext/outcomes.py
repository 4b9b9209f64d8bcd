"""``{outcomes}``: the outcomes that every kind of result can have, from the library's own sets."""

import re
from importlib import import_module
from pathlib import Path

from docutils.parsers.rst import Directive
from plain_nodes import section, table

import polyattn

SET = re.compile(r"^(\w+) = OutcomeSet\[", re.MULTILINE)


class Outcomes(Directive):
    """One section per kind of result: names, whether each is the one to hope for, meanings."""

    def run(self):
        """In alphabetical order."""
        headings = ("outcome.name", "outcome.ok", "means")
        return [
            section(
                each.result,
                table(
                    headings,
                    [
                        (name, "yes" if meaning.ok else "no", meaning.text)
                        for name, meaning in each.meanings.items()
                    ],
                ),
            )
            for each in sorted(outcome_sets(), key=lambda each: each.result)
        ]


def outcome_sets():
    """All sets that the library defines, wherever they stand."""
    root = Path(polyattn.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for name in SET.findall(path.read_text(encoding="utf-8")):
            module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
            yield getattr(import_module(module.removesuffix(".__init__")), name)


def setup(app):
    """Called by Sphinx."""
    app.add_directive("outcomes", Outcomes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
