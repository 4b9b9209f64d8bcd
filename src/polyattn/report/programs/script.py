"""The script of a page: the player, and the film that it plays."""

from __future__ import annotations

import json
from importlib.resources import files

from polyattn.report.programs.film import Film


def player_script(film: Film) -> str:
    """JavaScript that plays a film on the page; nothing in it can end the script element.

    Text is ASCII without ``<``: no ``</script>`` or ``<!--``, whatever states are called, and no
    line ends that a browser would change before it compares the digest of the page's policy.
    """
    player = files("polyattn.report.programs").joinpath("player.js").read_text(encoding="utf-8")
    data = json.dumps(film.to_dict(), separators=(",", ":"), allow_nan=False)
    harmless = data.replace("<", "\\u003c")
    return f"{player}play({harmless});\n"
