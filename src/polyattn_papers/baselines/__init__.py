"""Models trained by gradients, to stand beside the closed form; they need torch."""

from polyattn.errors import missing_extra

try:
    import torch  # noqa: F401 – looked for once here, so that no module below has to
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise missing_extra("torch", "torch") from None
