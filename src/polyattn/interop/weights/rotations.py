"""Rotary positions as configurations have them: frequencies, and coordinates in the half layout.

Coordinate pairs of a query and a key are turned by t * frequency[i].  Of r coordinates, rd are
turned: the pairs are (i, i + rd/2), or with ``interleaved`` (2 i, 2 i + 1).  SoftmaxAttention
turns (i, i + r/2): coordinates are put in that order, queries and keys alike, which changes no
product, and pairs that are not turned have frequency 0.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, InvalidType, require_number
from polyattn.interop.low_rank import Matrix
from polyattn.interop.weights.layouts import LAYOUTS
from polyattn.numerics.arrays import real_array, require_finite
from polyattn.quoting import shown

# Kinds of scaled frequencies that are understood.
KINDS = ("default", "linear", "llama3")


def frequencies_of(
    rotary: float | str | ArrayLike | None,
    head_dim: int,
    config: dict[str, Any] | None,
    kept: Matrix | None = None,
) -> Matrix | None:
    """The frequencies (rd/2,) of the pairs that are turned; None where nothing is.

    rotary : "auto" (by the configuration), a number theta, frequencies, or None
    kept : those that a module holds, if it does: it turns by these, whatever its settings say
    """
    if rotary is None:
        return None
    if isinstance(rotary, str):
        return _by_config(rotary, head_dim, config, kept)
    if isinstance(rotary, Real):
        return _powers(_positive("rotary", rotary), _turned(head_dim, config))
    found = np.asarray(real_array(rotary, "rotary"), dtype=np.float64)
    require_finite(found, "rotary")
    if head_dim % 2:
        raise InvalidInput(
            f"rotary positions turn pairs of coordinates, and head_dim = {head_dim} is not even; "
            "give n_heads, or rotary=None."
        )
    if found.ndim != 1 or not 1 <= len(found) <= head_dim // 2:
        raise InvalidInput(
            "rotary must be a number theta, None, or an array of at most head_dim / 2 = "
            f"{head_dim // 2} frequencies; got shape {found.shape}."
        )
    return found


def half_order(head_dim: int, n_turned: int, interleaved: bool) -> NDArray[np.intp]:
    """The coordinates of a head in the order of the half layout.

    n_turned : rd, how many of them are turned, in pairs
    """
    turned, rest = np.arange(n_turned), np.arange(n_turned, head_dim)
    first, second = (turned[0::2], turned[1::2]) if interleaved else np.split(turned, 2)
    still = np.split(rest, [len(rest) // 2])
    return np.concatenate([first, still[0], second, still[1]])


def padded(frequencies: Matrix, head_dim: int) -> Matrix:
    """Frequencies (head_dim / 2,): zero for pairs that are not turned."""
    return np.pad(frequencies, (0, head_dim // 2 - len(frequencies)))


def _by_config(
    rotary: str, head_dim: int, config: dict[str, Any] | None, kept: Matrix | None
) -> Matrix:
    if rotary != "auto":
        raise InvalidInput(
            f"rotary must be 'auto', a number theta, frequencies, or None; got {shown(rotary)}."
        )
    settings = _settings(config or {})
    theta = settings.get("rope_theta")
    if theta is None:
        raise InvalidInput(
            "rotary must be given: queries and keys of this layout are turned, and no "
            "configuration beside the weights says by which frequencies. Give rotary=theta "
            "(rope_theta of the model, 10000.0 in many), an array of frequencies, or None where "
            "nothing is turned; or config, where it is known."
        )
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind not in KINDS:
        raise InvalidInput(
            f"rotary positions of type {shown(kind)} are not understood ({', '.join(KINDS)} are); "
            "give rotary, an array of frequencies, if they are the same for all lengths, and scale "
            "where they also multiply queries and keys (attention_scaling)."
        )
    n_turned = _turned(head_dim, config) if kept is None else 2 * len(kept)
    frequencies = _powers(_positive("rope_theta", theta), n_turned)
    if kind != "default":
        factor = _positive("factor of rotary positions", settings.get("factor"))
        linear = frequencies / factor
        frequencies = linear if kind == "linear" else _llama3(frequencies, factor, settings)
    # Those of a module are powers in float32, right to 1e-6, or rounded with all of it.
    if kept is not None and not np.allclose(kept, frequencies, rtol=1e-5, atol=0.0):
        return kept
    return frequencies


def _settings(config: dict[str, Any]) -> dict[str, Any]:
    """rope_theta, rope_type and what belongs to it, wherever releases put them."""
    found = {"rope_theta": config["rope_theta"]} if config.get("rope_theta") is not None else {}
    for name in ("rope_scaling", "rope_parameters"):
        inner = config.get(name)
        if inner is None:
            continue
        if not isinstance(inner, dict) or any(isinstance(each, dict) for each in inner.values()):
            raise InvalidInput(
                f"{name} of the configuration must be one set of numbers; got {shown(inner)}. "
                "Give rotary, the theta or the frequencies of this layer."
            )
        found |= {key: each for key, each in inner.items() if each is not None}
    return found


def _turned(head_dim: int, config: dict[str, Any] | None) -> int:
    """How many coordinates of a head are turned."""
    settings = config or {}
    share = settings.get("partial_rotary_factor")
    share = _settings(settings).get("partial_rotary_factor", 1.0) if share is None else share
    count = int(head_dim * _positive("partial_rotary_factor", share))
    model = settings.get("model_type")
    if count != head_dim and model in LAYOUTS["llama"].models:
        raise InvalidInput(
            f"the configuration has partial_rotary_factor={shown(share)}, and the modules of "
            f"model_type={model!r} turn all coordinates nevertheless, or cannot run; give rotary, "
            "the frequencies by which yours turns, or config without it."
        )
    if count > head_dim or count < 2 or count % 2 or head_dim % 2:
        raise InvalidInput(
            f"rotary positions turn pairs of coordinates; head_dim = {head_dim} and "
            f"partial_rotary_factor = {share} make {count} of them. Give n_heads, or rotary."
        )
    return count


def _powers(theta: float, n_turned: int) -> Matrix:
    return np.asarray(theta ** (-np.arange(0, n_turned, 2) / n_turned), dtype=np.float64)


def _llama3(frequencies: Matrix, factor: float, settings: dict[str, Any]) -> Matrix:
    """Low frequencies divided by ``factor``, high ones as they are, and between both a blend."""
    low, high, length = (
        _positive(name, settings.get(name))
        for name in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    if high <= low:
        raise InvalidInput(
            f"high_freq_factor must be above low_freq_factor; got {high:g} and {low:g}."
        )
    turns = length * frequencies / (2.0 * np.pi)
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray((1.0 - share) * frequencies / factor + share * frequencies)


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool):
        raise InvalidType(f"{name} must be a positive number; got {shown(value)}.")
    number = require_number(name, value)
    if number == 0.0:
        raise InvalidInput(f"{name} must be a positive number; got 0.")
    return number
