"""``{benchmark-scripts}``: every script under benchmarks/ with what its docstring says it shows."""

import ast
from pathlib import Path

from docutils import nodes
from plain_nodes import block, paragraph
from sphinx.util.docutils import SphinxDirective

# What scripts only share measures nothing itself, and has no such line.
RUNS = 'if __name__ == "__main__":'


class BenchmarkScripts(SphinxDirective):
    """A definition list: the file, and its docstring."""

    def run(self):
        """In alphabetical order."""
        folder = Path(self.env.srcdir).parent / "benchmarks"
        found = nodes.definition_list()
        for path in scripts(folder):
            self.env.note_dependency(str(path))
            term = nodes.term("", "", nodes.literal("", f"benchmarks/{path.name}"))
            shown = [_paragraph(part) for part in docstring(path).split("\n\n")]
            found += nodes.definition_list_item("", term, nodes.definition("", *shown))
        return [found]


def scripts(folder):
    """The files that measure something."""
    return sorted(path for path in folder.glob("*.py") if RUNS in path.read_text(encoding="utf-8"))


def docstring(path):
    """What a script says of itself."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def _paragraph(text):
    return block(text.strip()) if text.startswith("    ") else paragraph(text.replace("``", ""))


def setup(app):
    """Called by Sphinx."""
    app.add_directive("benchmark-scripts", BenchmarkScripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
