"""The frame of every page: one file that asks for nothing from anywhere.

A page is a title, a lead, and sections of HTML made from templates that escape what they are
given.  Its content security policy forbids all requests and allows no script but the one that
the page carries, named by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from polyattn._version import __version__
from polyattn.display import figure
from polyattn.files.atomic import write_atomically


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; ``body`` is HTML that ``fill`` or a figure made."""

    title: str
    body: Markup


@dataclass(frozen=True)
class Page:
    """A page before it is written: ``script`` is the only JavaScript that it will run."""

    title: str
    lead: str
    sections: list[Section]
    script: str = ""

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page: complete, or not at all."""
        write_page(path, render_page(self.title, self.lead, self.sections, self.script))


def render_page(
    title: str, lead: str | Markup, sections: Sequence[Section], script: str = ""
) -> str:
    """The HTML of a page; ``script`` is the only JavaScript that it will run."""
    # The first of them does not speak of the last two.
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    return _templates().get_template("page.html").render(
        title=title, lead=lead, sections=sections, policy=policy, script=Markup(script),  # noqa: S704 – ours
        version=__version__,
    )  # fmt: skip


def write_page(path: str | os.PathLike[str], html: str) -> None:
    """Write a page: complete, or not at all."""
    # Names from files may hold half a character, which UTF-8 has no bytes for.
    content = html.encode(errors="xmlcharrefreplace")
    write_atomically(path, lambda file: file.write(content))


def fill(template: str, /, package: str = "polyattn.report", **content: Any) -> Markup:
    """The template ``templates/NAME.html`` of a package, filled; everything else is escaped."""
    return Markup(_templates(package).get_template(f"{template}.html").render(content))  # noqa: S704 – autoescaped


@cache
def _templates(package: str = "polyattn.report") -> Environment:
    environment = Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["short"] = partial(figure, digits=3, unknown="–")
    return environment
