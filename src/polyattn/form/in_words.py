"""A form in words, for pages, cards and the command line."""

from __future__ import annotations

from inspect import isfunction
from itertools import pairwise
from typing import Any

import numpy as np

from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.form.token_maps import TokenMap, same_map
from polyattn.quoting import counted, shown

# So many coordinates or decays are named; of more, their number is.
MOST_NAMED = 6


def form_in_words(layout: Layout) -> str:
    """What was chosen beside mode and bias: "decay 0.9, query: coordinates 0–4".

    Empty for the papers' layer, which is described by mode and bias alone.
    """
    form, context = layout.form, layout.n_context_dims
    words = [
        "" if context is None else f"context of {counted(context, 'coordinate')}",
        "" if form.include_query else "query not attended to",
        "mean of tokens" if form.mean else "",
        "" if form.window is None else f"window of {counted(form.window, 'token')}",
        _decay(form),
        "" if form.lags is None else f"heads for {counted(form.lags, 'lag')}",
        *_maps(form),
        "linear map of the query added" if form.skip else "",
        "intercept added" if form.intercept else "",
    ]
    return ", ".join(each for each in words if each)


def form_sizes(layout: Layout) -> dict[str, Any]:
    """What JSON gains beside mode and bias; nothing for the papers' layer."""
    gained: dict[str, Any] = {} if layout.form.is_plain else {"form": repr(layout.form)}
    if layout.n_context_dims is not None:
        gained["n_context_dims"] = layout.n_context_dims
    return gained


def scale_in_words(form: Form, number: int) -> str:
    """Which tokens the heads of a scale attend to: "decay 0.9", "distance 2", "distances from 3".

    Empty where the form has one scale.
    """
    if len(form.scales) == 1:
        return ""
    start, stop, _ = form.scales[number]
    if form.lags is None:
        return f"decay {_decays(form)[number]}"
    if stop is None:
        return f"distances from {start}"
    return f"distance {start}" if stop == start + 1 else f"distances {start}–{stop - 1}"


def _decay(form: Form) -> str:
    if form.decay is None:
        return ""
    if form.decay == "loo":
        return "decay chosen by leaving out"
    if not isinstance(form.decay, tuple):
        return f"decay {_decays(form)[0]}"
    if len(form.decay) > MOST_NAMED:
        return f"{len(form.decay)} decays"
    return f"decays {_listed(_decays(form))}"


def _decays(form: Form) -> list[str]:
    """Each decay, with as many digits as tell it from the others and from 1; at least four."""
    decays = [scale.decay for scale in form.scales]
    for n_digits in range(4, 17):
        words = [f"{each:.{n_digits}g}" for each in decays]
        if len({*words, "1"}) == len({*decays, 1.0}):
            return words
    return [repr(each) for each in decays]


def _maps(form: Form) -> list[str]:
    """What is seen of tokens; roles that see the same are named together."""
    seen: list[tuple[TokenMap, list[str]]] = []
    for role in ("query", "key", "value"):
        given = getattr(form, role)
        if given is None:
            continue
        roles = next((roles for known, roles in seen if same_map(known, given)), None)
        if roles is None:
            seen.append((given, [role]))
        else:
            roles.append(role)
    return [f"{_listed(roles)}: {_map_in_words(given)}" for given, roles in seen]


def _map_in_words(given: TokenMap) -> str:
    if isinstance(given, np.ndarray):
        return f"matrix ({given.shape[0]}, {given.shape[1]})"
    if isinstance(given, slice):
        return _slice_in_words(given)
    if isinstance(given, tuple):
        return _coordinates_in_words(given)
    # The name of a function of the user's own, which Python shows with its address.
    return f"function {given.__name__}" if isfunction(given) else shown(given)


def _coordinates_in_words(given: tuple[int, ...]) -> str:
    if len(given) == 1:
        return f"coordinate {given[0]}"
    if len(given) > 2 and given[0] >= 0 and all(b == a + 1 for a, b in pairwise(given)):
        return f"coordinates {given[0]}–{given[-1]}"
    if len(given) > MOST_NAMED:
        return counted(len(given), "coordinate")
    return f"coordinates {_listed([str(each) for each in given])}"


def _slice_in_words(given: slice) -> str:
    start, stop, step = given.start or 0, given.stop, given.step or 1
    if step != 1 or start < 0 or (stop is not None and stop < 0):
        parts = (given.start, given.stop, given.step)[: 2 if given.step is None else 3]
        return "coordinates " + ":".join("" if part is None else str(part) for part in parts)
    if stop is None:
        return f"coordinates from {start}"
    return f"coordinate {start}" if stop == start + 1 else f"coordinates {start}–{stop - 1}"


def _listed(words: list[str]) -> str:
    """One after the other: "a", "a and b", "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
