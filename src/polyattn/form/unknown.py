"""Arguments that a function or a class does not have: what a user may have meant by them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from polyattn.errors import InvalidInput, InvalidType

# Where to read why some layers are not of this family.
BEYOND = "docs/guides/beyond_linear.md"

# Words of other libraries, and what takes their place here.
INSTEAD = {
    "mask": "tokens attend to all others, to those before, or to a window of them: "
    "mode='causal', Form(window=...), Form(include_query=False); padding is left out by giving "
    "sequences of their own lengths",
    "gate": "a gate depends on the token and is not linear in its parameters; a fixed decay is: "
    "Form(decay=...), or Form(decay='loo')",
    "softmax": "softmax is not linear in its parameters: see pa.learn_softmax",
    "normalize": "a learned denominator is not linear in its parameters; a mean over tokens is: "
    "Form(mean=True)",
    "depth": "one layer is fitted to its optimum; several are not a convex problem",
}
MEANT = {
    "attention_mask": "mask", "attn_mask": "mask", "key_padding_mask": "mask", "gates": "gate",
    "gating": "gate", "delta_rule": "gate", "normalise": "normalize", "denominator": "normalize",
    "n_layers": "depth", "num_layers": "depth",
}  # fmt: skip

# Other names of what there is, and how it is written here.
WRITTEN = {
    "heads": "n_heads", "num_heads": "n_heads", "n_head": "n_heads",
    "causal": "mode='causal'", "is_causal": "mode='causal'",
    "alpha": "ridge", "lambda_": "ridge", "lam": "ridge", "penalty": "ridge",
    "l2": "ridge", "seed": "random_state", "rng": "random_state",
    "fit_intercept": "intercept=True", "residual": "skip=True", "window_size": "window",
    "half_life": "decay=0.5 ** (1 / half_life)",
}  # fmt: skip

Class = TypeVar("Class", bound=type)


def refuse_unknown(
    caller: str, unknown: Collection[str], known: Collection[str], parts: Collection[str] = ()
) -> None:
    """Refuse arguments that there are not, with what to write instead.

    known : the arguments of the caller
    parts : those of a form, where the caller takes one
    """
    for name in unknown:
        instead = INSTEAD.get(MEANT.get(name, name))
        if instead is not None:
            raise InvalidInput(f"{caller} has no argument {name!r}: {instead}. See {BEYOND}.")
        if name in parts:
            raise InvalidType(
                f"{name} is a part of the form of the layer: give form=Form({name}=...)."
            )
        raise InvalidType(
            f"{caller} got an unexpected keyword argument {name!r}"
            f"{_instead_of(name, known, parts)}."
        )


def answers_unknown(parts: Collection[str] = ()) -> Callable[[Class], Class]:
    """A decorator of classes whose constructors refuse as ``refuse_unknown`` does.

    parts : the arguments of a form, where the class takes one
    """

    def decorated(cls: Class) -> Class:
        construct: Callable[..., None] = cls.__init__  # type: ignore[misc]
        known = [name for name in signature(construct).parameters if name != "self"]

        @wraps(construct)
        def checked(self: Any, *given: Any, **named: Any) -> None:
            unknown = [name for name in named if name not in known]
            refuse_unknown(type(self).__name__, unknown, known, parts)
            construct(self, *given, **named)

        cls.__init__ = checked  # type: ignore[misc]
        return cls

    return decorated


def _instead_of(name: str, known: Collection[str], parts: Collection[str]) -> str:
    """How the end of a message names the argument that was meant, if one is known or near."""
    written = WRITTEN.get(name)
    if written is None:
        near = get_close_matches(name, [*known, *parts], n=1)
        written = near[0] if near else None
    if written is None:
        return ""
    argument, given, _ = written.partition("=")
    if argument in known:
        return f"; give {written} instead"
    if argument in parts:
        return f"; give form=Form({written if given else f'{written}=...'}) instead"
    return f": fit takes {written}"
