"""Arguments that ``fit`` does not have: what a user may have meant by them."""

from __future__ import annotations

from dataclasses import fields

from polyattn.errors import InvalidInput, InvalidType
from polyattn.form.form import BEYOND, Form

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
    "attention_mask": "mask", "attn_mask": "mask", "key_padding_mask": "mask",
    "is_causal": "mask", "gates": "gate", "gating": "gate", "delta_rule": "gate",
    "normalise": "normalize", "denominator": "normalize", "n_layers": "depth",
    "num_layers": "depth",
}  # fmt: skip


def refuse_unknown(unknown: dict[str, object]) -> None:
    """Refuse arguments that there are not, with what to write instead."""
    for name in unknown:
        instead = INSTEAD.get(MEANT.get(name, name))
        if instead is not None:
            raise InvalidInput(f"fit has no argument {name!r}: {instead}. See {BEYOND}.")
        if name in {each.name for each in fields(Form)}:
            raise InvalidType(
                f"{name} is a part of the form of the layer: give form=Form({name}=...)."
            )
        raise InvalidType(f"fit() got an unexpected keyword argument {name!r}.")
