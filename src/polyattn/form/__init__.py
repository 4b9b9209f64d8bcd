"""Which layer is meant: its form, the maps of its tokens, and the layout of its features."""

from polyattn.form.form import Form
from polyattn.form.layout import Layout

__all__ = ["Form", "Layout"]
