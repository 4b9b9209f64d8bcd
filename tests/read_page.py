"""Pages as readers see them: text, tables and pictures of an HTML file, whatever its layout."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)


class Page(HTMLParser):
    """``text`` is what stands outside of pictures and scripts, ``drawn`` the text of pictures.

    ``titles`` are headings of sections, ``tables`` lists of rows of texts, ``script`` what runs.
    """

    def __init__(self, html):
        super().__init__()
        self.html, self.tags, self.attributes = html, [], []
        self.titles, self.tables, self.script = [], [], ""
        self._open, self._text, self._drawn = [], [], []
        self.feed(html)
        self.text = " ".join("".join(self._text).split())
        self.drawn = self._drawn
        self.tables = [[[" ".join(cell.split()) for cell in row] for row in table]
                       for table in self.tables]  # fmt: skip

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "link", "img", "br", "input", "image", "rect", "path", "use"):
            self._open.append(tag)
        new = {"table": (self.tables, []), "h2": (self.titles, ""), "text": (self._drawn, "")}
        if tag in new:
            where, empty = new[tag]
            where.append(empty)
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "script" in self._open:
            self.script += data
        elif "svg" in self._open:
            if "text" in self._open:
                self._drawn[-1] += data
        elif "style" not in self._open and "title" not in self._open:
            self._text.append(data if self._open[-1:] == ["span"] else f"{data} ")
            if {"td", "th"} & set(self._open):
                self.tables[-1][-1][-1] += data
            if "h2" in self._open:
                self.titles[-1] += data

    @property
    def numbers(self):
        return {float(one.replace(",", "").replace("−", "-")) for one in NUMBER.findall(self.text)}

    def holds(self, number):
        """Whether the text has this number with three to six digits."""
        return any(float(f"{number:.{digits}g}") in self.numbers for digits in (3, 4, 5, 6))

    def pictures(self):
        """The pixels of all maps of colours, (rows, columns, 4)."""
        from io import BytesIO

        from matplotlib.image import imread

        found = [value for tag, name, value in self.attributes if (tag, name) == ("image", "href")]
        return [imread(BytesIO(base64.b64decode(each.split(",", 1)[1]))) for each in found]

    def requests(self):
        """Whatever would make a browser ask somebody: addresses, but for the names of SVG."""
        text = re.sub(r'xmlns(:xlink)?="http://www\.w3\.org/[\w/]+"', "", self.html)
        return re.findall(r"https?://|@import|\b(?:src|href)=\"(?!data:|#)", text)

    def played(self):
        return json.loads(self.script[self.script.rindex("play(") + 5 : self.script.rindex(")")])


def page_of(thing, path, *data, **options):
    thing.report(path, *data, **options)
    return Page(Path(path).read_text(encoding="utf-8"))
