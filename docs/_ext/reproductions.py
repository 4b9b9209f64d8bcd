"""One page for each experiment of the papers, from what ``polyattn reproduce`` wrote.

``reproduction/NAME/table.json`` and ``figure.png`` are shown as they are; where they are missing
the page says so.  ``{reproduction} NAME`` is the content of a page, ``{reproductions}`` the table
of all.
"""

import json
from pathlib import Path

from docutils import nodes
from plain_nodes import block, bullets, paragraph, section
from plain_nodes import table as as_table
from sphinx.addnodes import download_reference
from sphinx.util.docutils import SphinxDirective

from polyattn_papers.reproduction import NAMES

FOLDER = "reproduction"

# A longer table is left to table.csv.
SHORT_TABLE, WIDEST_TABLE = 16, 10

PAGE = "# {title}\n\n```{{reproduction}} {name}\n```\n"


def write_pages(app):
    """Write reproduction/NAME.md for every experiment; the directive fills it."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        table = read(folder / name)
        text = PAGE.format(title=escaped(table["title"]) if table else name, name=name)
        page = folder / f"{name}.md"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def read(folder):
    """The content of table.json, or None if the experiment was not run."""
    path = folder / "table.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def escaped(text):
    """Plain text as Markdown."""
    return "".join("\\" + c if c in r"\`*_{}[]()<>#+!|$" else c for c in text)


class Reproductions(SphinxDirective):
    """All experiments: title, where the paper has it, whether the gates hold."""

    def run(self):
        """One table."""
        rows = []
        for name in NAMES:
            table = read(Path(self.env.srcdir) / FOLDER / name)
            link = nodes.reference("", name, refuri=f"{FOLDER}/{name}.html", internal=True)
            if table is None:
                cells = ["", "", "not run yet"]
            else:
                held = [gate["passed"] for gate in table["gates"]]
                outcome = f"{sum(held)} of {len(held)} gates hold"
                cells = [table["title"], table["reference"], outcome]
            rows.append([link, *cells])
        return [as_table(["experiment", "what", "where", "outcome"], rows)]


class Reproduction(SphinxDirective):
    """What one experiment claims, found and kept."""

    required_arguments = 1

    def run(self):
        """The sections of the page."""
        name = self.arguments[0]
        folder = Path(self.env.srcdir) / FOLDER / name
        self.env.note_dependency(str(folder / "table.json"))
        table = read(folder)
        if table is None:
            return [paragraph("This experiment has not been run yet. To run it:"), again(name)]
        return [
            paragraph(f"{table['reference']} Run with profile {table['profile']}."),
            section("What the paper says", paragraph(table["claim"])),
            section("What we found", bullets(table["findings"]), *self.figure(folder, table)),
            section("Gates", gates(table["gates"])),
            section("Rows", *self.rows(name, table)),
            section("Run it again", again(name, table["profile"]), environment(table)),
        ]

    def figure(self, folder, table):
        """The picture; what it shows is said to those who do not see it, too."""
        path = folder / "figure.png"
        if not path.is_file():
            return []
        text = f"{table['title']}: " + " ".join(table["findings"])
        image = nodes.image(uri=f"/{FOLDER}/{folder.name}/figure.png", alt=text)
        return [nodes.figure("", image)]

    def rows(self, name, table):
        """The rows if they are few, and the file that holds them all."""
        rows = table["rows"]
        link = download_reference(
            "", "", nodes.literal("", "table.csv"), reftarget=f"/{FOLDER}/{name}/table.csv",
            refdoc=self.env.docname,
        )  # fmt: skip
        found = paragraph(f"{len(rows)} rows: ")
        found += link
        if not rows or len(rows) > SHORT_TABLE or len(rows[0]) > WIDEST_TABLE:
            return [found]
        return [found, as_table(list(rows[0]), [[plain(v) for v in row.values()] for row in rows])]


def gates(found):
    """Each gate with what was seen."""
    words = {True: "holds", False: "FAILS"}
    rows = [[gate["claim"], gate["seen"], words[gate["passed"]]] for gate in found]
    return as_table(["gate", "seen", ""], rows)


def again(name, profile="full"):
    """The command."""
    return block(f"polyattn reproduce {name} --profile {profile}")


def environment(table):
    """Date, versions and machine in one line."""
    around = ", ".join(f"{key} {value}" for key, value in table["surroundings"].items())
    return paragraph(f"All cells together took {table['seconds']:,.0f} s: {around}.")


def plain(value):
    """A cell of a table: numbers short, nothing where there is nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def setup(app):
    """Called by Sphinx."""
    app.connect("builder-inited", write_pages)
    app.add_directive("reproduction", Reproduction)
    app.add_directive("reproductions", Reproductions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
