"""Links of a folder of HTML pages: whether it can be moved anywhere as it is."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlparse

ADDRESSES = ("href", "src", "data", "poster", "action")
# What has a place of its own: no path on the disk of whoever built the site.
LOCAL = re.compile(
    r"file://|\b(?:localhost|127\.0\.0\.1)\b|[\"'(=](?:/home/|/root/|/tmp/|[A-Z]:\\)"
)


class _Page(HTMLParser):
    """The addresses of a page, and the places in it that one can link to."""

    def __init__(self):
        super().__init__()
        self.addresses, self.places = [], set()

    def handle_starttag(self, _, attrs):
        for name, value in attrs:
            if name in ADDRESSES and value is not None:
                self.addresses.append(value)
            if name in ("id", "name"):
                self.places.add(value)


def wrong_links(folder):
    """All that keeps a folder of pages from being published as it is, by page.

    Addresses that begin at a root or lead out of the folder, to no file, or to no place in it;
    and names of places on this machine.
    """
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        pages[path] = page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    found = {}
    for path, page in pages.items():
        wrong = [each for each in page.addresses if _is_wrong(folder, path, each, pages)]
        wrong += LOCAL.findall(path.read_text(encoding="utf-8"))
        if wrong:
            found[str(path.relative_to(folder))] = wrong
    return found


def _is_wrong(folder, page, address, pages):
    parts = urlparse(address)
    if parts.scheme in ("https", "http", "mailto", "data"):
        return False
    if parts.scheme or parts.netloc or address.startswith("/"):
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_relative_to(folder) or not target.is_file():
        return True
    place = unquote(parts.fragment)
    return bool(place) and target in pages and place not in pages[target].places
