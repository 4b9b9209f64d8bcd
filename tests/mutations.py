"""Ways to damage and to forge files: bytes, JSON documents, safetensors and archives of arrays.

A mutation takes a generator and the bytes of a good file, and returns other bytes.  Forged files
are sealed again, so that nothing but what they hold is wrong with them.
"""

import copy
import io
import json
import zipfile

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from polyattn.files import records as files
from polyattn.files.strict_json import json_digest

# What JSON can write and Python cannot: a number beyond float64, and lists in lists in lists.
INFINITE, BOTTOMLESS = "@infinite@", "@bottomless@"


def deep(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


VALUES = [
    None, True, False, 0, 1, -1, 2, 3, 7, 1000, 1_000_000, 2**31, 2**53 + 1, 2**63, -(2**63),
    10**30, 10**400, 0.5, -0.0, -1.5, 1e-320, 1e308, -1e308, INFINITE, float("nan"), float("inf"),
    "", "x", "last", "full", "exact", "0", "\x1b[31mred", "\ud800", "[/]", "{{7*7}}", "a" * 5000,
    [], {}, [[]], [0], ["x"], {"x": 0}, deep(40), deep(90), BOTTOMLESS, [0] * 3000,
    {"variable": "t", "offset": 9},
]  # fmt: skip

NUMBERS = [0.0, -1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1e150]
INTEGERS = [0, 1, -1, 2, 1000, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63)]
TYPES = [np.float32, np.int64, np.uint8, np.bool_, np.int32, np.float16]


# Bytes -------------------------------------------------------------------------------------------


def any_bytes(rng, content):
    """A few flipped bits, a cut, a missing, a doubled, a foreign or a moved piece."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(data) + 1))
        some = data[at : at + int(rng.integers(1, 40))]
        way = rng.integers(7)
        if way == 0 and at < len(data):
            data[at] ^= 1 << int(rng.integers(8))
        elif way == 1:
            del data[at:]
        elif way == 2:
            del data[at : at + len(some)]
        elif way == 3:
            data[at:at] = some
        elif way == 4:
            data[at:at] = rng.bytes(int(rng.integers(1, 20)))
        elif way == 5:
            data[at : at + 8] = pick(rng, [b"\xff" * 8, bytes(8), b"\x7f" * 4, b"-9999999"])
        elif way == 6:
            data[at : at + 1] = pick(
                rng, [b"{", b"[", b'"', b"*", b"&", b"!", b"\n", b"9e9", b"\x1b"]
            )
    return bytes(data)


# Plain data --------------------------------------------------------------------------------------


def changed(rng, content):
    """Plain data with one to three places changed."""
    content = copy.deepcopy(content)
    for _ in range(int(rng.integers(1, 4))):
        places = list(_places(content))
        if not places:
            return pick(rng, VALUES)
        parent, key = places[int(rng.integers(len(places)))]
        way = rng.integers(10)
        if way >= 8:
            parent[key] = _tweaked(rng, parent[key])
        elif way < 4:
            parent[key] = copy.deepcopy(pick(rng, VALUES))
        elif way == 4:
            del parent[key]
        elif way == 5:
            other, there = places[int(rng.integers(len(places)))]
            parent[key] = copy.deepcopy(other[there])
        elif way == 6 and isinstance(parent, dict):
            parent[str(pick(rng, ["", "extra", "digest", "\x1b[0m", "name"]))] = parent.pop(key)
        else:
            parent[key] = pick(rng, [[parent[key]], {"x": parent[key]}])
    return content


def as_json(content):
    """JSON text of anything, numbers beyond float64 included."""
    text = json.dumps(content).replace(f'"{INFINITE}"', "1e999")
    return text.replace(f'"{BOTTOMLESS}"', "[" * 3000 + "]" * 3000)


def document(seal):
    """Mutations of a JSON document; ``seal`` makes a forged one look genuine."""

    def mutate(rng, content):
        made = changed(rng, json.loads(content))
        if isinstance(made, dict) and rng.integers(8):
            made = seal(made)
        return as_json(made).encode()

    return mutate


def with_digest(name):
    """Seal a document by a digest under this name."""

    def seal(content):
        inside = {key: each for key, each in content.items() if key != name}
        try:
            return inside | {name: json_digest(json.loads(as_json(inside)))}
        except (ValueError, RecursionError):
            return content

    return seal


# Records -----------------------------------------------------------------------------------------


def record(rng, content):
    """A safetensors file with other metadata or other arrays, sealed again."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])["__metadata__"]
    described, arrays = json.loads(header["description"]), load_arrays(content)
    way = rng.integers(4)
    if way == 0 and arrays:
        arrays = _other_arrays(rng, arrays)
    elif way == 1:
        described = changed(rng, described)
    elif isinstance(described.get("metadata"), dict):
        described["metadata"] = changed(rng, described["metadata"])
    text = as_json(described)
    if not rng.integers(20):
        text = any_bytes(rng, text.encode()).decode(errors="replace")
    return sealed_record(arrays, text, header["version"])


def sealed_record(arrays, description, version="1"):
    """A file of the format of records with a digest that is right."""
    digest = files._digest(arrays, version, description)
    metadata = {
        "format": files.FORMAT, "version": version, "description": description, "digest": digest,
    }  # fmt: skip
    return save_arrays(arrays, metadata=metadata)


def _other_arrays(rng, arrays):
    arrays = {name: each.copy() for name, each in arrays.items()}
    name = pick(rng, list(arrays))
    array, way = arrays[name], rng.integers(6)
    if way == 0:
        del arrays[name]
    elif way == 1:
        arrays["extra"] = array
    elif way == 2:
        arrays[name] = np.nan_to_num(array).astype(pick(rng, TYPES))
    elif way == 3:
        arrays[name] = array.reshape(-1)[: int(rng.integers(array.size + 1))].copy()
    elif way == 4 and array.ndim:
        arrays[name] = np.ascontiguousarray(np.moveaxis(array, 0, -1))
    elif array.size:
        numbers = INTEGERS if array.dtype.kind == "i" else NUMBERS
        array.reshape(-1)[int(rng.integers(array.size))] = pick(rng, numbers)
    return arrays


# Arrays ------------------------------------------------------------------------------------------

HEADERS = [
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 3), }",
    "{'descr': '<f8', 'fortran_order': 1, 'shape': (2, 3), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<U0', 'fortran_order': False, 'shape': (9999999,), }",
    "{'descr': '<f3', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<f8', 'shape': (2,)}", "(" * 3000, "-" * 9000 + "1", "{'descr': ", "[]", "\xff", "",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 1000000000000000000000), }",
]  # fmt: skip


def npy(rng, content):
    """An array file with another header, other numbers, or another type."""
    way = rng.integers(4)
    if way == 0:
        text = pick(rng, HEADERS).encode("latin1")
        return content[:8] + len(text).to_bytes(2, "little") + text + content[-48:]
    if way == 1:
        header = int.from_bytes(content[8:10], "little")
        return content[:10] + any_bytes(rng, content[10 : 10 + header]) + content[10 + header :]
    array = np.load(io.BytesIO(content))
    if way == 2 and array.size and array.dtype.kind == "f":
        array.reshape(-1)[int(rng.integers(array.size))] = pick(rng, NUMBERS)
    else:
        array = array.reshape(-1)[: int(rng.integers(array.size + 1))].astype(
            pick(rng, [*TYPES, np.complex128, "U3", "S2", ">f8", ">i2"])
        )
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()


def npz(rng, content):
    """An archive with other members, packed in other ways, or with other sizes in its lists."""
    way = rng.integers(3)
    if way == 0:
        data = bytearray(content)
        at = content.rfind(b"PK\x01\x02", 0, int(rng.integers(len(content)) + 4))
        place = max(0, at) + int(rng.integers(46))
        data[place] = int(rng.integers(256))
        return bytes(data)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = pick(rng, list(members))
    if way == 1:
        members[name] = npy(rng, members[name])
    else:
        members[str(pick(rng, ["X.npy", "Z.npy", "Y", "../X.npy", "\x1b.npy"]))] = members.pop(name)
    packing = pick(
        rng, [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]
    )
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", packing) as archive:
        for each, data in members.items():
            archive.writestr(each, data)
    return target.getvalue()


def pick(rng, choices):
    return choices[int(rng.integers(len(choices)))]


def _tweaked(rng, value):
    """A value of the same type that is not far away."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return pick(rng, [value + 1, value - 1, 2 * value, -value, 10 * value + 3])
    if isinstance(value, float):
        return pick(rng, [value + 1, -value, 2 * value, value / 3, value * 1e200])
    if isinstance(value, str):
        return pick(rng, [value + "x", value[:-1], value.upper(), value[::-1]])
    if isinstance(value, list):
        return pick(rng, [value[:-1], value[::-1], value + value[:1]])
    return value


def _places(content):
    """Every place in plain data, as its parent and its key."""
    waiting = [content]
    while waiting:
        each = waiting.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each))
        for key in keys:
            yield each, key
            if isinstance(each[key], dict | list):
                waiting.append(each[key])
