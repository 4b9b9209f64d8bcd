"""Form: the description of an attention layer that is linear in its parameters.

For a predicted position t with query token x_t,

    y_t = sum_h sum_s w(t, s) (q_t^T A_h k_s) V_h^T v_s  +  W^T q_t  +  c,

where q_t = query(x_t), k_s = key(z_s), v_s = value(z_s) are fixed maps of tokens, s runs over the
positions that t attends to, and the weights w depend on t - s alone.  All that the data say of t
is then (S_t, q_t) with S_t = sum_s w(t, s) v_s k_s^T, whatever the form [yau2024: Lemma E.1].
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import (
    FileFormatError,
    InvalidInput,
    InvalidType,
    require_choice,
    require_flag,
    require_integer,
)
from polyattn.files.fields import entries, plain_value
from polyattn.form.token_maps import TokenMap, as_token_map, map_from_dict, map_to_dict
from polyattn.form.unknown import BEYOND, answers_unknown
from polyattn.quoting import shown
from polyattn.sequences import MODES

# Every lag has features of its own.
MOST_LAGS = 10_000


class Scale(NamedTuple):
    """Tokens at distances start <= t - s < stop, with the weight decay^(t - s)."""

    start: int
    stop: int | None
    decay: float = 1.0

    def attended(self, length: int) -> slice:
        """The tokens of a sequence of this length at these distances from the last one."""
        low = 0 if self.stop is None else max(0, length - self.stop)
        return slice(low, max(low, length - self.start))

    def weights(self, distances: NDArray) -> NDArray[np.float64] | None:
        """decay^distance; None where all weights are 1."""
        return None if self.decay == 1.0 else self.decay ** distances.astype(np.float64)


@answers_unknown()
@dataclass(frozen=True, eq=False)
class Form:
    """Which positions are predicted, what they attend to, and what is seen of a token.

    Parameters
    ----------
    mode : "last" | "causal" | "full"
        ``last``: one output, for the last token, which attends to all; ``causal``: one output per
        token, which attends to itself and those before; ``full``: one per token, attending to all.
    include_query : bool
        Whether a token attends to itself.  False for in-context learning, where the last token
        is asked about the others.
    mean : bool
        Divide the sum over tokens by the number of tokens attended to.
    window : int, optional
        Attend only to tokens at distances t - s < window.
    decay : float in (0, 1], list of such, or "loo"
        Weigh a token at distance t - s by decay^(t - s).  A list gives one set of heads for each
        decay.  ``"loo"``: ``fit`` chooses a number by leaving sequences out.
    lags : int, optional
        One set of heads for each distance 0 .. lags - 1, and one for all larger ones together.
    query, key, value : coordinates, matrix or map, optional
        What is seen of the query token, and of the tokens attended to: a list or slice of
        coordinates, a matrix (d, r), or a function of tokens (n, d) -> (n, r) such as those of
        ``pa.maps``, which must see each token by itself.  None: the token itself.
    skip : bool
        Add a linear map of the query token (a residual connection).
    intercept : bool
        Add a constant to the outputs.
    bias : bool
        Append a coordinate that is always 1 to queries, keys and values.

    Examples
    --------
    >>> import polyattn as pa
    >>> pa.Form(mode="causal", decay=0.9)
    Form(mode='causal', decay=0.9)
    >>> pa.Form(include_query=False, mean=True, query=slice(0, 5), key=range(5), value=[5])
    Form(include_query=False, mean=True, query=slice(0, 5, None), key=(0, 1, 2, 3, 4), value=(5,))
    """

    mode: str = "last"
    include_query: bool = True
    mean: bool = False
    window: int | None = None
    decay: Any = None  # float, tuple of floats, or "loo", once it is checked
    lags: int | None = None
    query: TokenMap = None
    key: TokenMap = None
    value: TokenMap = None
    skip: bool = False
    intercept: bool = False
    bias: bool = False

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"mode": _checked_mode(self.mode)}
        for name in ("include_query", "mean", "skip", "intercept", "bias"):
            checked[name] = require_flag(name, getattr(self, name))
        for name in ("window", "lags"):
            given = getattr(self, name)
            checked[name] = None if given is None else require_integer(name, given, 1)
        if (checked["lags"] or 1) > MOST_LAGS:
            raise InvalidInput(f"lags must be at most {MOST_LAGS:,}; got {shown(self.lags)}.")
        checked["decay"] = _checked_decay(self.decay)
        for name in ("query", "key", "value"):
            checked[name] = as_token_map(getattr(self, name), name)
        vars(self).update(checked)
        self._require_consistent()

    @cached_property
    def scales(self) -> tuple[Scale, ...]:
        """The distances and weights of each set of heads."""
        if self.decay == "loo":
            raise InvalidInput(
                "decay='loo' is chosen by fit, from sequences; give a number here, such as "
                "result.form.decay of a fit."
            )
        start, stop = 0 if self.include_query else 1, self.window
        if self.lags is None:
            decays = self.decay if isinstance(self.decay, tuple) else (self.decay or 1.0,)
            return tuple(Scale(start, stop, decay) for decay in decays)
        alone = min(self.lags, stop or self.lags)
        scales = [Scale(lag, lag + 1) for lag in range(start, alone)]
        if stop is None or stop > alone:
            scales.append(Scale(max(alone, start), stop))
        return tuple(scales)

    def n_attended(self, n_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many tokens a position attends to that may see ``n_tokens``, itself included."""
        # A window can be longer than numpy's integers.
        most = min(self.window or sys.maxsize, sys.maxsize)
        seen = np.minimum(n_tokens, most)
        return seen if self.include_query else seen - 1

    @property
    def shares_sums(self) -> bool:
        """Whether all tokens of a sequence attend to the same tokens."""
        return self.mode == "full" and self.include_query

    @cached_property
    def is_plain(self) -> bool:
        """Whether this is the layer of the papers: nothing but mode and bias was chosen."""
        return self == plain_form(self.mode, self.bias)

    def to_dict(self) -> dict[str, Any]:
        """What differs from the default, as plain data; ``from_dict`` is the inverse."""
        chosen = self._chosen()
        for name in ("query", "key", "value"):
            if name in chosen:
                chosen[name] = map_to_dict(chosen[name], name)
        if isinstance(self.decay, tuple):
            chosen["decay"] = list(self.decay)
        return chosen

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Form:
        """The form that ``to_dict`` described.

        Raises FileFormatError for whatever no form wrote.
        """
        entries({}, {each.name: plain_value for each in fields(cls)})(content, "form")
        chosen = dict(content)
        for name in ("query", "key", "value"):
            if name in chosen:
                chosen[name] = map_from_dict(chosen[name], f"form.{name}")
        try:
            return cls(**chosen)
        except (InvalidInput, InvalidType) as error:
            raise FileFormatError(f"form: {error}") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Form):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __reduce__(self) -> tuple[type[Form], tuple[Any, ...]]:
        # Copies are made as forms are: of their fields, checked and read-only.
        return Form, tuple(getattr(self, each.name) for each in fields(self))

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={_shown(value)}" for name, value in self._chosen().items())
        return f"Form({chosen})"

    def _chosen(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        defaults = {each.name: each.default for each in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if not (value is defaults[name] or (np.isscalar(value) and value == defaults[name]))
        }

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        """What two equal forms share; arrays and slices by their content."""

        def plain(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return ("matrix", value.shape, value.tobytes())
            if isinstance(value, slice):
                return ("slice", value.start, value.stop, value.step)
            return value

        return tuple(plain(getattr(self, each.name)) for each in fields(self))

    def _require_consistent(self) -> None:
        by_distance = [name for name in ("window", "decay", "lags") if getattr(self, name)]
        if self.mode == "full" and by_distance:
            raise InvalidInput(
                f"{by_distance[0]} counts back from the query, but in mode 'full' a token also "
                "attends to those after it; choose mode 'causal' or 'last'."
            )
        if self.lags is not None and self.decay is not None:
            raise InvalidInput(
                "lags and decay both weigh tokens by their distance; give one of them."
            )
        if self.window == 1 and not self.include_query:
            raise InvalidInput(
                "window=1 with include_query=False leaves no token to attend to; choose a window "
                "of at least 2."
            )
        if self.intercept and self.skip and self.bias:
            raise InvalidInput(
                "with skip=True and bias=True the constant is added already; leave out intercept."
            )


# The names of all parts of a form.
PARTS = tuple(each.name for each in fields(Form))


@lru_cache(maxsize=2 * len(MODES))
def plain_form(mode: str, bias: bool) -> Form:
    """The layer of the papers; the same object for the same arguments."""
    return Form(mode=mode, bias=bias)


def require_form(
    form: Form | None, mode: str = "last", bias: bool = False, **others: object
) -> Form:
    """The form that was given, or that of ``mode`` and ``bias``; giving both is refused.

    others : further arguments of the caller that a form holds, None where they were not given
    """
    if form is None:
        return plain_form(_checked_mode(mode), require_flag("bias", bias))
    if not isinstance(form, Form):
        raise InvalidType(f"form must be a polyattn.Form; got {shown(form)}.")
    twice = [name for name, value in others.items() if value is not None]
    twice += ["mode"] * (mode not in ("last", form.mode)) + ["bias"] * bool(bias and not form.bias)
    if twice:
        raise InvalidInput(
            f"{twice[0]} was given beside a form, which holds it too: give Form({twice[0]}=...)."
        )
    return form


def _shown(value: Any) -> str:
    """A field of a form: all coordinates and decays, a matrix by its shape, other things short."""
    if isinstance(value, np.ndarray):
        return f"matrix of shape {value.shape}"
    return repr(value) if isinstance(value, tuple) else shown(value)


def _checked_mode(mode: object) -> str:
    if isinstance(mode, str) and mode in ("cross", "cross_attention"):
        raise InvalidInput(
            f"mode must be one of {', '.join(map(repr, MODES))}; got {mode!r}. Cross-attention is "
            f"asked for by context=Z, the sequences attended to, beside a mode; see {BEYOND}."
        )
    return require_choice("mode", mode, MODES)


def _checked_decay(decay: object) -> float | tuple[float, ...] | str | None:
    if decay is None or (isinstance(decay, str) and decay == "loo"):
        return decay
    if isinstance(decay, np.ndarray):
        decay = list(decay) if decay.ndim else decay[()]
    if isinstance(decay, Sequence) and not isinstance(decay, str | bytes):
        if any(isinstance(each, str) and each == "loo" for each in decay):
            raise InvalidInput(
                "decay='loo' chooses one number, and stands alone; a list of decays holds numbers "
                f"in (0, 1], got {shown(decay)}. Choose the others yourself, or give decay='loo'."
            )
        found = tuple(_one_decay(each) for each in decay)
        if not found or len(set(found)) < len(found):
            raise InvalidInput(f"decay must be a list of different numbers; got {shown(decay)}.")
        return found
    return _one_decay(decay)


def _one_decay(decay: object) -> float:
    number = isinstance(decay, int | float | np.integer | np.floating)
    # Compared before it is converted: an integer can be too large for a float.
    if number and not isinstance(decay, bool) and 0 < decay <= 1:  # type: ignore[operator]
        return float(decay)  # type: ignore[arg-type]
    message = f"decay must be a number in (0, 1], a list of such, or 'loo'; got {shown(decay)}."
    if number:
        message += " 1 forgets nothing; window=1 attends to the query alone."
    elif callable(decay) or isinstance(decay, np.ndarray):
        message += (
            " A decay that depends on the token is a gate, which is not linear in its parameters: "
            f"see {BEYOND}."
        )
    raise InvalidInput(message)
