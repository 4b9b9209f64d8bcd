"""Labels in files: text, integers, booleans or whole numbers, exactly and with their type."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import FileFormatError
from polyattn.files.fields import entries, flag, listed, number, require, text

# What ``numpy.unique`` makes of labels: numbers of up to 64 bits, and text.
_TYPE = re.compile(r"[<>|=](?:b1|[iu][1248]|f[248]|U[1-9][0-9]{0,5})")

# Labels of a file take no more memory.
MOST_BYTES = 1 << 26

FIELDS = entries({"dtype": text(20), "values": listed(lambda *_: None, 2)})


def labels_to_dict(classes: NDArray) -> dict[str, Any]:
    """Sorted labels as plain data."""
    return {"dtype": classes.dtype.str, "values": classes.tolist()}


def labels_from_dict(content: Any, where: str) -> NDArray:
    """The labels of a file, if they are sorted and all different."""
    FIELDS(content, where)
    name, values = content["dtype"], content["values"]
    require(_TYPE.fullmatch(name) is not None, f"{where}.dtype", "a type of labels", name)
    dtype = np.dtype(name)
    check = {"b": flag, "U": text()}.get(dtype.kind, number(-(2.0**64), 2.0**64))
    for at, each in enumerate(values):
        check(each, f"{where}.values[{at}]")
    size = dtype.itemsize * len(values)
    require(size <= MOST_BYTES, f"{where}.dtype", f"labels of at most {MOST_BYTES} bytes", name)
    try:
        classes = np.array(values, dtype=dtype)
    except (OverflowError, ValueError, TypeError):
        raise FileFormatError(f"{where}.values must be labels of type {name}.") from None
    kept = classes.tolist() == values and list(map(type, classes.tolist())) == [*map(type, values)]
    require(kept, f"{where}.values", f"labels of type {name}", values)
    ascending = bool(np.all(classes[1:] > classes[:-1]))
    require(ascending, f"{where}.values", "different labels in ascending order", values)
    return classes
