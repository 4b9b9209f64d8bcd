"""``{outcomes}``: every kind of result with the outcomes it can have, from the sets in the code."""

from docutils import nodes
from docutils.parsers.rst import Directive
from plain_nodes import section, table


class Outcomes(Directive):
    """One section per kind of result, so that no outcome has to be listed by hand."""

    def run(self):
        """In alphabetical order of the results."""
        return [
            section(result, table(["name", "ok", "what happened"], rows(meanings)))
            for result, meanings in sorted(outcomes().items())
        ]


def outcomes():
    """For each class of results its outcomes by name; sets of one class stand together."""
    import polyattn  # noqa: F401 – sets are there once the modules that word them are imported
    from polyattn.outcome import OutcomeSet

    found = {}
    for each in OutcomeSet.all:
        found.setdefault(each.result, {}).update(each.meanings)
    return found


def rows(meanings):
    """A row for each outcome."""
    return [
        [nodes.literal(name, name), "yes" if meaning.ok else "no", meaning.text]
        for name, meaning in meanings.items()
    ]


def setup(app):
    """Called by Sphinx."""
    app.add_directive("outcomes", Outcomes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
