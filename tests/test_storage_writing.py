"""Files as they are written: where, with which permissions, whole or not at all, by several."""

import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.files import records as files
from polyattn.files.atomic import FORMATS
from polyattn.files.records import Record, write_record
from polyattn.sources.scan import OPENERS
from storage_cases import X, Y, random_layer

CERTIFICATE = pa.certify(X)


# Places -------------------------------------------------------------------------------------


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "nowhere"))):
        pa.load(tmp_path / "nowhere")


def test_a_directory_is_not_a_file(tmp_path):
    with pytest.raises(InvalidInput, match=re.escape(str(tmp_path))):
        pa.load(tmp_path)
    (tmp_path / "inside").mkdir()
    with pytest.raises(InvalidInput, match="inside"):
        pa.save(random_layer(1, 2, 2), tmp_path / "inside")
    assert os.listdir(tmp_path) == ["inside"]
    assert os.listdir(tmp_path / "inside") == []


def test_a_missing_directory(tmp_path):
    target = tmp_path / "no" / "where" / "layer.safetensors"
    with pytest.raises(FileNotFoundError) as refusal:
        pa.save(random_layer(1, 2, 2), target)
    message = str(refusal.value)
    # The name that was given, not that of a temporary file beside it.
    assert str(target.parent) in message
    assert ".layer.safetensors." not in message
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("obj", [None, 3, "layer", {"attn": 1}, np.eye(2), pa.LinearAttention])
def test_what_cannot_be_saved(obj, tmp_path):
    with pytest.raises(InvalidType, match=rf"LinearAttention, .*got {type(obj).__name__}\."):
        pa.save(obj, tmp_path / "object")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("thing", "names", "own"),
    [
        (random_layer(1, 2, 1), ("m.pkl", "m.JSON", "m.npz", "m.parquet"), "m.safetensors"),
        (pa.Moments(1, 1), ("m.pickle",), "m.safetensors"),
        (CERTIFICATE, ("m.pkl", "m.safetensors"), "m.json"),
    ],
    ids=["layer", "moments", "JSON"],
)
def test_a_name_of_another_format_is_refused(tmp_path, thing, names, own):
    for name in names:
        for save in (thing.save if hasattr(thing, "save") else None, lambda p: pa.save(thing, p)):
            if save is not None:
                with pytest.raises(InvalidInput, match=rf"call it '{own}'"):
                    save(tmp_path / name)
    assert os.listdir(tmp_path) == []
    for name in (own, "m", "m.v2"):
        pa.save(thing, tmp_path / name)
        assert pa.load(tmp_path / name) is not None


@pytest.mark.parametrize("thing", [random_layer(1, 2, 1), CERTIFICATE], ids=["layer", "JSON"])
@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        (".", InvalidInput, "path '.' is a folder; name a file in it"),
        (Path(), InvalidInput, "path '.' is a folder; name a file in it"),
        ("folder/", InvalidInput, "path 'folder' is a folder; name a file in it"),
        ("link", InvalidInput, "path 'link' is a folder; name a file in it"),
        ("", InvalidInput, "path must name a file; got ''"),
        ("a\0b", InvalidInput, "path must name a file"),
        (None, InvalidType, "path must name a file, as a text or a Path; got None"),
        (3, InvalidType, "path must name a file, as a text or a Path; got 3"),
        (b"layer", InvalidType, "path must name a file, as a text or a Path"),
    ],
)
def test_a_path_that_names_no_file_is_refused(tmp_path, monkeypatch, thing, path, kind, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for call in (lambda: pa.save(thing, path), lambda: pa.load(path), lambda: thing.report(path)):
        with pytest.raises(kind, match=re.escape(text)):
            call()
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["folder", "link"]


def test_a_folder_is_refused_before_heads_are_looked_for(tmp_path):
    result = pa.fit(X, Y)
    with pytest.raises(InvalidInput, match="is a folder"):
        pa.save(result, tmp_path)
    assert "heads" not in vars(result)


def test_paths_as_text_and_with_any_letters(tmp_path):
    path = str(tmp_path / "Größe ½ layer.safetensors")
    layer = random_layer(1, 2, 2)
    pa.save(layer, path)
    assert pa.load(path) == layer


def test_saving_again_replaces(tmp_path):
    path = tmp_path / "layer"
    for n_heads in (1, 2):
        pa.save(random_layer(n_heads, 2, 2), path)
        assert pa.load(path).n_heads == n_heads
    assert os.listdir(tmp_path) == ["layer"]


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    pa.save(random_layer(1, 2, 2), tmp_path / "layer")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "layer")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o777, 0o444])
def test_a_file_that_is_replaced_keeps_its_permissions(mode, tmp_path):
    path = tmp_path / "layer"
    pa.save(random_layer(1, 2, 2), path)
    path.chmod(mode)
    pa.save(random_layer(2, 2, 2), path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert pa.load(path).n_heads == 2


def test_a_symbolic_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    pa.save(random_layer(1, 2, 2), there / "layer")
    (tmp_path / "link").symlink_to("there/layer")
    (tmp_path / "second").symlink_to("link")
    pa.save(random_layer(2, 2, 2), tmp_path / "second")
    assert (tmp_path / "second").is_symlink()
    assert (tmp_path / "link").is_symlink()
    assert not (there / "layer").is_symlink()
    assert pa.load(there / "layer").n_heads == 2
    assert os.listdir(there) == ["layer"]
    (tmp_path / "dangling").symlink_to("there/new")
    pa.save(random_layer(3, 2, 2), tmp_path / "dangling")
    assert pa.load(there / "new").n_heads == 3


def test_links_that_lead_nowhere_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "a"))):
        pa.save(random_layer(1, 2, 2), tmp_path / "a")
    (tmp_path / "gone").symlink_to("no/where")
    with pytest.raises(FileNotFoundError, match="no"):
        pa.save(random_layer(1, 2, 2), tmp_path / "gone")


def test_what_is_no_ordinary_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="no ordinary file"):
        pa.save(random_layer(1, 2, 2), tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_names_as_long_as_the_system_allows(tmp_path):
    layer = random_layer(1, 2, 2)
    pa.save(layer, tmp_path / ("n" * 255))
    assert pa.load(tmp_path / ("n" * 255)) == layer
    with pytest.raises(OSError, match=r"n{256}"):
        pa.save(layer, tmp_path / ("n" * 256))
    assert os.listdir(tmp_path) == ["n" * 255]


# All or nothing -----------------------------------------------------------------------------


class Interrupted(BaseException):
    """Not an Exception, like KeyboardInterrupt."""


@pytest.mark.parametrize("error", [OSError("disk full"), Interrupted()])
@pytest.mark.parametrize("step", ["fsync", "chmod", "replace", "fdopen"])
@pytest.mark.parametrize("exists", [False, True])
def test_a_failing_write_leaves_everything_as_it_was(monkeypatch, tmp_path, exists, step, error):
    path = tmp_path / "layer"
    old = random_layer(1, 2, 2)
    if exists:
        pa.save(old, path)

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(type(error)):
        pa.save(random_layer(2, 2, 2), path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == (["layer"] if exists else [])
    if exists:
        assert pa.load(path) == old


def test_readers_never_see_half_a_file(monkeypatch, tmp_path):
    """When the new file takes its place, it is complete already."""
    path, seen = tmp_path / "layer", []
    pa.save(random_layer(1, 2, 2), path)
    move = os.replace

    def watched(source, target):
        seen.append((pa.load(path).n_heads, pa.load(source).n_heads))
        move(source, target)

    monkeypatch.setattr(files.os, "replace", watched)
    pa.save(random_layer(2, 2, 2), path)
    assert seen == [(1, 2)]


def test_a_description_too_long_for_a_file_leaves_none(monkeypatch, tmp_path):
    def too_large(*_, **__):
        raise SafetensorError("header too large")

    monkeypatch.setattr("safetensors.numpy.save", too_large)
    with pytest.raises(
        InvalidInput, match=r"'linear_attention' cannot.*header too large.*of a form"
    ):
        pa.save(random_layer(1, 2, 2), tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_metadata_that_json_cannot_hold_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_record(Record("layer", {}, {"risk": float("nan")}), tmp_path / "x")
    assert os.listdir(tmp_path) == []


# Killed runs --------------------------------------------------------------------------------

SAVING = """
import os, sys, time
import polyattn as pa
def wait(*_):
    print(flush=True)
    time.sleep(60)
os.fsync = wait
pa.save(pa.data.random_layer(2), sys.argv[1])
"""


@pytest.fixture
def saver(tmp_path):
    """Begin to save in another process; it waits with its temporary file half written."""
    begun = []

    def begin():
        process = subprocess.Popen(
            [sys.executable, "-c", SAVING, str(tmp_path / "layer")], stdout=subprocess.PIPE
        )
        begun.append(process)
        process.stdout.readline()
        return process

    yield begin
    for process in begun:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_a_killed_run_left_is_removed_by_the_next_save(saver, tmp_path):
    killed, alive = saver(), saver()
    (tmp_path / "other.tmp").touch()
    killed.kill()
    killed.wait()
    assert len(os.listdir(tmp_path)) == 3
    pa.save(random_layer(1, 2, 2), tmp_path / "elsewhere")
    assert len(os.listdir(tmp_path)) == 4
    layer = random_layer(2, 2, 2)
    pa.save(layer, tmp_path / "layer")
    left = set(os.listdir(tmp_path)) - {"layer", "other.tmp", "elsewhere"}
    # Of the other saver, which is still at work.
    assert len(left) == 1
    assert pa.load(tmp_path / "layer") == layer
    alive.kill()
    alive.wait()
    pa.save(layer, tmp_path / "layer")
    assert set(os.listdir(tmp_path)) == {"layer", "other.tmp", "elsewhere"}


def test_many_savers_of_one_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "layer"
    layers = [random_layer(n, 2, 2) for n in (1, 2, 3, 4)]

    def save_often(layer):
        for _ in range(25):
            pa.save(layer, path)
            assert pa.load(path) in layers

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save_often, layers))
    assert os.listdir(tmp_path) == ["layer"]


def test_files_of_data_are_not_taken_for_others():
    assert set(OPENERS) <= set(FORMATS)
