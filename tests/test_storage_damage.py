"""Files that are damaged, foreign or forged: none of them passes for a good one."""

import re

import numpy as np
import pytest
from safetensors.numpy import save_file

import polyattn as pa
from polyattn.errors import FileFormatError, PolyattnError
from polyattn.files import records as files
from polyattn.files.records import Record, read_record, write_record
from storage_cases import OBJECTS, X, Y, random_layer

# Damage -------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    """A small file, its path and its bytes."""
    path = tmp_path / "layer.safetensors"
    pa.save(pa.LinearAttention([[1.5]], [[-0.25]], "causal"), path)
    return path, path.read_bytes()


def test_a_file_cut_anywhere_is_refused(small):
    path, content = small
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FileFormatError, match=re.escape(str(path))):
            pa.load(path)


def test_bytes_behind_the_end_are_refused(small):
    path, content = small
    for more in (b"\0", b" ", content):
        path.write_bytes(content + more)
        with pytest.raises(FileFormatError):
            pa.load(path)


def test_every_flipped_bit_is_noticed(small):
    path, content = small
    passed = []
    for index in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[index] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                pa.load(path)
            except OSError as refusal:
                assert isinstance(refusal, PolyattnError), refusal  # noqa: PT017
            else:
                around = content[max(0, index - 12) : index + 5]
                passed.append(f"byte {index}, bit {bit}, near {around!r}")
    assert not passed, passed


@pytest.mark.parametrize("name", ["moments", "factor", "result with ridge path"])
def test_flipped_bits_in_larger_files_are_noticed(name, tmp_path):
    path = tmp_path / "object"
    pa.save(OBJECTS[name](), path)
    content = path.read_bytes()
    for index in np.random.default_rng(0).integers(len(content), size=300):
        damaged = bytearray(content)
        damaged[index] ^= 1 << (index % 8)
        path.write_bytes(damaged)
        with pytest.raises(OSError, match=re.escape(str(path))):
            pa.load(path)


FOREIGN = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("attn: 1.0\n" * 50),
    "zeros": lambda path: path.write_bytes(bytes(1000)),
    "huge header": lambda path: path.write_bytes(b"\xff" * 1000),
    "numpy": lambda path: np.ones((1, 2, 2)).tofile(path),
    "safetensors": lambda path: save_file({"attn": np.ones((1, 2, 2))}, path),
    "safetensors of others": lambda path: save_file(
        {"attn": np.ones((1, 2, 2))}, path, metadata={"format": "pt"}
    ),
    "no description": lambda path: save_file(
        {"attn": np.ones((1, 2, 2))}, path, metadata={"format": "polyattn", "version": "1"}
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_refused(name, tmp_path):
    path = tmp_path / "foreign"
    FOREIGN[name](path)
    with pytest.raises(FileFormatError, match=re.escape(str(path))) as refusal:
        pa.load(path)
    assert str(refusal.value).endswith(".")


@pytest.mark.parametrize("version", ["2", "10", "1.5", "", "one", "-1", "²", "0"])
def test_other_versions_are_refused(monkeypatch, version, tmp_path):
    monkeypatch.setattr(files, "FORMAT_VERSION", version)
    pa.save(random_layer(1, 2, 2), tmp_path / "layer")
    monkeypatch.undo()
    with pytest.raises(FileFormatError, match=rf"version.*{re.escape(repr(version))}") as refusal:
        pa.load(tmp_path / "layer")
    assert version not in ("2", "10") or "Upgrade" in str(refusal.value)


def test_an_unknown_kind_is_refused(tmp_path):
    write_record(Record("hologram", {"values": np.ones(3)}), tmp_path / "h")
    with pytest.raises(FileFormatError, match=r"'hologram'.*does not know"):
        pa.load(tmp_path / "h")


LAYER = {"mode": "last", "bias": False}
MOMENTS = pa.Moments(2, 2).update(X, Y).to_record()

FORGED = {
    # Written with a valid digest, but not by any release: not an object of that kind.
    "no arrays": Record("linear_attention", {}, LAYER),
    "half": Record("linear_attention", {"attn": np.ones((1, 2, 2))}, LAYER),
    "shapes": Record("linear_attention", {"attn": np.eye(2), "value": np.eye(3)}, LAYER),
    "nan": Record("linear_attention", {"attn": np.eye(2) * np.nan, "value": np.eye(2)}, LAYER),
    "mode": Record("linear_attention", {"attn": np.eye(2), "value": np.eye(2)}, {"mode": "up"}),
    "more": Record("linear_attention", {"attn": np.eye(2), "value": np.eye(2)}, {"size": 3}),
    "empty moments": Record("moments", {}, {}),
    "moments without sums": Record("moments", {}, MOMENTS.metadata),
    "moments that broadcast": Record(
        "moments", {name: np.ones((1,) * a.ndim) for name, a in MOMENTS.arrays.items()},
        MOMENTS.metadata,
    ),
    "result of nothing": Record("fit_result", {}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forged_files_are_refused(name, tmp_path):
    path = tmp_path / "forged"
    write_record(FORGED[name], path)
    with pytest.raises((OSError, ValueError)) as refusal:
        pa.load(path)
    assert isinstance(refusal.value, PolyattnError)


def test_a_statistic_is_loaded_by_its_own_class_only(tmp_path):
    pa.save(random_layer(1, 2, 2), tmp_path / "layer")
    with pytest.raises(FileFormatError, match=r"'linear_attention', not a 'moments'"):
        pa.Moments.load(tmp_path / "layer")
    with pytest.raises(FileFormatError):
        read_record(tmp_path / "layer", "fit_result")
