"""What happens between the writes of a file; these tests die with the module that writes them."""

import os
import subprocess
import sys

import pytest

import polyattn as pa

pytestmark = pytest.mark.kernel

OLD, NEW = (pa.LinearAttention([[n]], [[1.0]]) for n in (1.0, 2.0))
# Saves a file, and waits when it is half written.
SAVING = """
import os, sys, time
import polyattn as pa
os.fsync = lambda *_: (print(flush=True), time.sleep(60))
pa.save(pa.data.random_layer(2), sys.argv[1])
"""


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace", "fdopen"])
def test_a_failing_write_leaves_everything_as_it_was(monkeypatch, tmp_path, step):
    def fail(*_, **__):
        raise KeyboardInterrupt

    for exists in (False, True):
        with monkeypatch.context() as patched:
            patched.setattr(os, step, fail)
            with pytest.raises(KeyboardInterrupt):
                pa.save(NEW, tmp_path / "layer")
        assert os.listdir(tmp_path) == ["layer"] * exists
        assert not exists or pa.load(tmp_path / "layer") == OLD
        pa.save(OLD, tmp_path / "layer")


def test_the_new_file_is_complete_when_it_takes_its_place(monkeypatch, tmp_path):
    seen, move, path = [], os.replace, tmp_path / "layer"
    pa.save(OLD, path)
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append((pa.load(b), pa.load(a))),
                                                     move(a, b)))  # fmt: skip
    pa.save(NEW, path)
    assert seen == [(OLD, NEW)]


def test_what_a_killed_run_left_is_removed_by_the_next_save_and_nothing_else(tmp_path):
    path, other = tmp_path / "layer", tmp_path / "other.tmp"
    other.touch()
    command = [sys.executable, "-c", SAVING, str(path)]
    with (subprocess.Popen(command, stdout=subprocess.PIPE) as killed,
          subprocess.Popen(command, stdout=subprocess.PIPE) as alive):  # fmt: skip
        for process in (killed, alive):
            process.stdout.readline()
        killed.kill()
        killed.wait()
        assert len(os.listdir(tmp_path)) == 3
        pa.save(OLD, path)
        # The file of the other saver, which is still at work, stays.
        assert len(set(os.listdir(tmp_path)) - {"layer", "other.tmp"}) == 1
        alive.kill()
    pa.save(NEW, path)
    assert set(os.listdir(tmp_path)) == {"layer", "other.tmp"}
