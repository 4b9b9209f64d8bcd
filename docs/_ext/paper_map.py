"""``{paper-map}``: what each paper states, our symbol for it, and the tests that check it.

Read from ``paper_map.toml`` beside the pages; ``tests/test_papers.py`` checks every entry.
"""

import tomllib
from pathlib import Path

from docutils import nodes
from plain_nodes import paragraph, section, table
from sphinx.addnodes import pending_xref
from sphinx.util.docutils import SphinxDirective

FILE = "paper_map.toml"
HEADINGS = ["statement", "what it says", "status", "here", "checked by"]


class PaperMap(SphinxDirective):
    """One section with one table for each paper."""

    def run(self):
        """The sections, in the order of the file."""
        path = Path(self.env.srcdir) / FILE
        self.env.note_dependency(str(path))
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return [self.paper(key, content) for key in content["papers"]]

    def paper(self, key, content):
        """Title, link and table of one paper."""
        paper = content["papers"][key]
        source = paragraph("Cited as ")
        source += [nodes.literal(key, key), nodes.Text(": ")]
        source += nodes.reference("", paper["title"], refuri=paper["url"])
        rows = [self.row(entry) for entry in content["statements"] if entry["paper"] == key]
        return section(paper["title"], source, table(HEADINGS, rows))

    def row(self, entry):
        """One statement; after its status a remark says how ours differs, or what it is here."""
        return [
            entry["statement"],
            entry["says"],
            ": ".join(entry[name] for name in ("status", "remark") if name in entry),
            listed([self.symbol(name) for name in entry["symbols"]], ", "),
            "; ".join(in_words(name) for name in entry["tests"]),
        ]

    def symbol(self, name):
        """The end of a name; it leads to the reference if it is described there."""
        return pending_xref(
            "", nodes.literal(name, ".".join(name.split(".")[-2:]).removeprefix("polyattn.")),
            refdomain="py", reftype="obj", reftarget=name, refdoc=self.env.docname,
            refexplicit=True, refwarn=False,
        )  # fmt: skip


def in_words(test):
    """Names of tests are sentences: tests/test_fit.py::test_the_risk_is_the_risk."""
    return test.partition("::test_")[2].replace("_", " ")


def listed(parts, between):
    """Several nodes in one cell."""
    cell = nodes.inline()
    for number, part in enumerate(parts):
        cell += [nodes.Text(between), part] if number else [part]
    return cell


def setup(app):
    """Called by Sphinx."""
    app.add_directive("paper-map", PaperMap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
