"""Parts of pages that are made from plain text while the site is built."""

from docutils import nodes


def section(title, *content):
    """A heading with what stands under it."""
    made = nodes.section(ids=[nodes.make_id(title)], names=[nodes.fully_normalize_name(title)])
    made += nodes.title(title, title)
    made += list(content)
    return made


def paragraph(text):
    """Plain text."""
    return nodes.paragraph(text, text)


def block(text):
    """Text as it would stand on a terminal."""
    return nodes.literal_block(text, text, language="text")


def bullets(sentences):
    """A list of plain sentences."""
    items = [nodes.list_item("", paragraph(sentence)) for sentence in sentences]
    return nodes.bullet_list("", *items)


def table(headings, rows):
    """A table of text and nodes."""
    group = nodes.tgroup(cols=len(headings))
    group += [nodes.colspec(colwidth=1) for _ in headings]
    group += nodes.thead("", _row(headings))
    group += nodes.tbody("", *[_row(row) for row in rows])
    return nodes.table("", group)


def _row(cells):
    content = [nodes.Text(cell) if isinstance(cell, str) else cell for cell in cells]
    return nodes.row("", *[nodes.entry("", nodes.paragraph("", "", one)) for one in content])
