"""Docstrings of the library are plain text; here they become markup that Sphinx can read.

Indented lines are formulas, ``name : what it is`` is a list of names, Guarantee and Cost begin
paragraphs, and signs such as ||T||^2 mean what they say.  Sections of numpy style are left to
napoleon, which runs next.
"""

import re
from itertools import groupby

LITERAL = re.compile(r"(``.+?``)")
NAMED = re.compile(r"^([\w.*]+(?:, [\w.*]+)*) : (.*)")
STRONG = re.compile(r"^(Guarantee|Cost|Memory): ")
LISTED = re.compile(r"^(?:[-*] |\d+[.)] )")
UNDERLINE = re.compile(r"^-{3,}$")

# Norms are no substitutions, powers and names with _ no emphasis and no links.
MARKUP = re.compile(r"\||(?<![\w\\])\*+(?=\S)|\*\*|(?<=\w)_(?!\w)")


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", process, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def process(app, what, name, obj, options, lines):  # noqa: ARG001 – the signature of the event
    """Rewrite the lines of one docstring in place."""
    lines[:] = readable(lines)
    if what in {"property", "attribute", "data"} and ":" in lines[0]:
        # Napoleon takes what stands before a colon there for a type; a line of its own is safe.
        before, after = lines[0].split(":", 1)
        lines[:1] = [before + "\\", ":" + after]


def readable(lines):
    """The lines as reStructuredText with sections in numpy style."""
    found, in_section = [], False
    for block in paragraphs(lines):
        if len(block) > 1 and UNDERLINE.match(block[1]):
            in_section = True
            found += [*map(escaped, block), ""]
        elif in_section and block[0].startswith(" "):
            found += [*map(escaped, block), ""]
        else:
            # Two blank lines end a section for napoleon.
            found += ["", *plain(block)] if in_section else plain(block)
            in_section = False
    return found


def paragraphs(lines):
    """Blocks of lines between blank ones."""
    return [list(block) for full, block in groupby(lines, lambda line: bool(line.strip())) if full]


def plain(block):
    """A paragraph outside of sections."""
    if block[0].startswith(">>>"):
        return [*block, ""]
    if LISTED.match(block[0]):
        return [*map(escaped, block), ""]
    if NAMED.match(block[0]):
        return [*map(_named, block), ""]
    found = []
    for indented, part in groupby(block, lambda line: line.startswith(" ")):
        lines = list(part)
        found += ["::", "", *lines, ""] if indented else [*_sentences(lines), ""]
    return found


def escaped(line):
    """A line whose signs are meant as they stand, outside of literal text."""
    parts = LITERAL.split(line)
    return "".join(part if part.startswith("``") else _escape(part) for part in parts)


def _escape(text):
    return MARKUP.sub(lambda match: "".join("\\" + sign for sign in match.group()), text)


def _named(line):
    match = NAMED.match(line)
    return f"- ``{match[1]}``: {escaped(match[2])}" if match else "  " + escaped(line.strip())


def _sentences(part):
    for line in part:
        if STRONG.match(line):
            yield ""
        yield STRONG.sub(lambda match: f"**{match[1]}:** ", escaped(line))
