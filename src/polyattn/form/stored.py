"""Forms in files: what a saved thing holds of its form, beside mode, bias and n_dims.

Files of the papers' layer hold nothing more, as those of older releases.
"""

from __future__ import annotations

from typing import Any

from polyattn.errors import FileFormatError, PolyattnError
from polyattn.files import fields
from polyattn.form.form import Form
from polyattn.form.layout import Layout

# Tokens of files are not wider: what is made of a forged width stays small.
MOST_DIMS = 1_000_000

# Fields of the metadata that only other forms have.
FORM_FIELDS = {"form": fields.any_object, "n_context_dims": fields.integer(1, MOST_DIMS)}


def form_fields(layout: Layout) -> dict[str, Any]:
    """What the metadata gain for this layout; nothing for the papers' layer."""
    gained: dict[str, Any] = {} if layout.form.is_plain else {"form": layout.form.to_dict()}
    if layout.n_context_dims is not None:
        gained["n_context_dims"] = layout.n_context_dims
    return gained


def stored_layout(metadata: dict[str, Any]) -> Layout:
    """The layout of a saved thing with the fields n_dims, mode, bias and those of its form."""
    mode, bias = metadata["mode"], metadata["bias"]
    fields.integer(1, MOST_DIMS)(metadata["n_dims"], "metadata.n_dims")
    try:
        form = Form.from_dict(metadata["form"]) if "form" in metadata else Form(mode, bias=bias)
        layout = Layout.of(form, metadata["n_dims"], metadata.get("n_context_dims"))
    except PolyattnError as error:
        raise FileFormatError(f"metadata.form describes no form: {error}") from None
    for name, wanted in (("mode", mode), ("bias", bias)):
        own = getattr(form, name)
        fields.require(own == wanted, f"metadata.form.{name}", f"that beside it, {wanted}", own)
    return layout
