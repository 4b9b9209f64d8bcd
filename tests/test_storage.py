"""Files: exact round trips, and no damaged, foreign or forged file that passes for a good one."""

import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import polyattn as pa
from fuzz_targets import own_program
from polyattn import storage
from polyattn.errors import FileFormatError, InvalidInput, InvalidType, PolyattnError
from polyattn.files import records as files
from polyattn.files.records import Record, read_record, write_record
from polyattn.sequences import MODES

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 4, 2))
FORM = pa.Form(mode="causal", decay=[0.5, 0.9], value=[1], skip=True, intercept=True)
Y = pa.data.random_layer(2, 2, mode="last")(X) + 0.1 * RNG.standard_normal((40, 2))
Y_CAUSAL = RNG.standard_normal((40, 4, 2))


def random_layer(n_heads, d, e, mode="last", bias=False):
    rng = np.random.default_rng(n_heads)
    return pa.LinearAttention(
        rng.standard_normal((n_heads, d, d)), rng.standard_normal((n_heads, d, e)), mode, bias
    )


def random_softmax(X):
    return pa.data.random_softmax_layer(3, n_heads=2, random_state=1)(X)


def learned_softmax() -> pa.LearnedSoftmax:
    task = pa.data.planted_softmax(60, 3, 2, random_state=0)
    return pa.learn_softmax(task.X, task.Y)


MEMORY = pa.programs.associative_memory(2, 2)


def learned_coefficients():
    return pa.programs.learn(MEMORY.schema, pa.programs.traces(MEMORY, 6), "coefficients")


OBJECTS = {
    "layer": lambda: random_layer(2, 3, 2),
    "layer with bias": lambda: random_layer(1, 3, 1, "causal", bias=True),
    "layer of any numbers": lambda: pa.LinearAttention([[5e-324, -0.0], [1e308, -1.0]], np.eye(2)),
    "softmax layer": lambda: pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)), "causal", bias=True),
    "learned softmax layer": learned_softmax,
    "layer from queries": lambda: pa.learn_from_queries(random_softmax, 3, mode="causal"),
    "layer with bias from queries": lambda: pa.learn_from_queries(random_softmax, 3, bias=True),
    "no layer from queries": lambda: pa.learn_from_queries(random_softmax, 3, max_queries=2),
    "moments": lambda: pa.Moments(2, 2).update(X, Y),
    "paired moments": lambda: pa.Moments(2, 2, "full", bias=True).update(X, Y_CAUSAL),
    "scaled moments": lambda: pa.Moments(2, 2).update(1e100 * X, 1e-100 * Y),
    "moments of inputs": lambda: pa.Moments(2, mode="causal").update(X),
    "empty moments": lambda: pa.Moments(3, 1),
    "factor": lambda: pa.TriangularFactor(2, 2, "causal").update(X, Y_CAUSAL),
    "short factor": lambda: pa.TriangularFactor(2, 2).update(X[:3], Y[:3]),
    "empty factor": lambda: pa.TriangularFactor(3, 1),
    "program": lambda: pa.programs.compile(pa.programs.universal_dfa(2, 3, 4)),
    "Turing machine": lambda: pa.programs.compile(pa.programs.universal_turing_machine(2, 2, 4)),
    "fixed program": lambda: pa.programs.compile(
        pa.programs.fixed_dfa(pa.programs.machines.parity(), 3)
    ),
    "program of your own": own_program,
    "learned rules": lambda: pa.programs.learn(MEMORY.schema, pa.programs.traces(MEMORY, 6)),
    "learned coefficients": learned_coefficients,
    "program certificate": lambda: learned_coefficients().certificate,
    "audit": lambda: pa.audit(random_layer(1, 2, 2), X, Y),
    "audit of a black box": lambda: pa.audit(lambda _: Y, X, Y),
    "audit of few rows": lambda: pa.audit(pa.fit(X[:3], Y[:3]), X[:3], Y[:3]),
    "learning curve": lambda: pa.learning_curve(X, Y, [8, 16], n_repeats=2),
    "layer of a form": lambda: pa.data.random_layer(2, 2, form=FORM),
    "moments of a form": lambda: pa.Moments(2, 2, form=FORM).update(X, Y_CAUSAL),
    "result of a form": lambda: pa.fit(X, Y_CAUSAL, form=FORM),
    "result by log-loss": lambda: pa.fit(X, Y[:, 0] > 0, loss="logistic", ridge=0.5),
    "result": lambda: pa.fit(X, Y),
    "result by dual": lambda: pa.fit(X, Y, solver="dual"),
    "result by iteration": lambda: pa.fit(X, Y, solver="iterative"),
    "result of few rows": lambda: pa.fit(X[:3], Y[:3]),
    "result with bias": lambda: pa.fit(X, Y_CAUSAL, mode="full", bias=True, ridge=0.5),
    "result with ridge path": lambda: pa.fit(X, Y, ridge="loo"),
    "result by gcv": lambda: pa.fit(X, Y, ridge="gcv"),
    "result from factor": lambda: pa.fit(
        statistics=pa.TriangularFactor(2, 2).update(X, Y), ridge=1.0
    ),
    "result with one head": lambda: pa.fit(X, Y, n_heads=1),
    "result of zeros": lambda: pa.fit(X, 0 * Y),
    "result of numpy options": lambda: pa.fit(
        X, Y, bias=np.True_, ridge=np.float32(0.5), random_state=np.int64(3), n_heads=np.int32(2)
    ),
}


# Round trips --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OBJECTS)
def test_round_trips_are_exact(name, tmp_path):
    obj = OBJECTS[name]()
    path = tmp_path / "object.safetensors"
    assert pa.save(obj, path) is None
    loaded = pa.load(path)
    assert type(loaded) is type(obj)
    assert_identical(loaded.to_record(), obj.to_record())
    pa.save(loaded, tmp_path / "again")
    assert_identical(read_record(tmp_path / "again"), read_record(path))


def test_a_loaded_program_runs(tmp_path):
    program = OBJECTS["Turing machine"]()
    pa.save(program, tmp_path / "program")
    loaded = pa.load(tmp_path / "program")
    beaver = pa.programs.machines.busy_beaver(2)
    assert loaded.run(beaver, []) == program.run(beaver, []) == beaver.run([0] * 4)
    assert loaded.layer == program.layer


@pytest.mark.parametrize("mode", MODES)
def test_a_loaded_layer_is_the_layer(mode, tmp_path):
    layer = random_layer(2, 3, 2, mode)
    pa.save(layer, tmp_path / "layer")
    loaded = pa.load(tmp_path / "layer")
    assert loaded == layer
    assert hash(loaded) == hash(layer)
    assert repr(loaded) == repr(layer)
    inputs = RNG.standard_normal((3, 4, 3))
    np.testing.assert_array_equal(loaded(inputs), layer(inputs))


@pytest.mark.parametrize("name", [name for name in OBJECTS if name.startswith("result")])
def test_a_loaded_result_is_the_result(name, tmp_path):
    result = OBJECTS[name]()
    pa.save(result, tmp_path / "result")
    loaded = pa.load(tmp_path / "result")
    assert loaded.outcome == result.outcome
    assert repr(loaded) == repr(result)
    assert loaded.layer == result.layer
    assert (loaded.gap, loaded.rank, loaded.condition) == (
        result.gap, result.rank, result.condition,
    )  # fmt: skip
    np.testing.assert_array_equal(loaded.predict(X), result.predict(X))
    if result.ridge_path is not None:
        assert loaded.ridge_path.best == result.ridge_path.best
        assert loaded.ridge_path.kind == result.ridge_path.kind
    assert (loaded.statistics is None) == (result.statistics is None)
    if result.statistics is not None and result.loss == "squared":
        again = pa.fit(statistics=loaded.statistics, ridge=loaded.ridge)
        expected = pa.fit(statistics=result.statistics, ridge=result.ridge)
        np.testing.assert_array_equal(again.coef, expected.coef)


def test_a_loaded_result_is_as_frozen_as_a_fitted_one(tmp_path):
    result = pa.fit(X, Y)
    pa.save(result, tmp_path / "result")
    for each in (result, pa.load(tmp_path / "result")):
        with pytest.raises(FrozenInstanceError):
            each.risk = 0.0
        with pytest.raises(ValueError, match="read-only"):
            each.coef[0, 0, 0] = 1.0
        with pytest.raises(ValueError, match="read-only"):
            each.layer.attn[0, 0, 0] = 1.0


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


def test_metadata_that_json_cannot_hold_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_record(Record("layer", {}, {"risk": float("nan")}), tmp_path / "x")
    assert os.listdir(tmp_path) == []


# No code in files ---------------------------------------------------------------------------

EXECUTING = re.compile(
    r"\bpickle\b(?! anywhere)|allow_pickle\s*=\s*True|joblib\.(load|dump)|\bshelve\b|\bmarshal\b"
    r"|(?<![\w.])(eval|exec)\(|weights_only\s*=\s*False|yaml\.load"
)


def test_nothing_in_the_source_executes_a_file():
    root = Path(pa.__file__).parent
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in root.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if EXECUTING.search(line) and not line.lstrip().startswith(("#", '"""'))
    ]
    assert not found, found
    assert EXECUTING.search("import pickle")
    assert EXECUTING.search("np.load(path, allow_pickle=True)")


def test_every_kind_is_covered_here():
    kinds = {
        OBJECTS[name]().to_record().kind
        for name in (
            "layer",
            "softmax layer",
            "learned softmax layer",
            "layer from queries",
            "moments",
            "factor",
            "result",
            "program",
            "learned rules",
            "learned coefficients",
            "program certificate",
            "audit",
            "learning curve",
        )
    }
    assert kinds == set(storage.KINDS)


# Helpers ------------------------------------------------------------------------------------


def assert_identical(found: Record, expected: Record):
    """Bit for bit, the sign of zero included."""
    assert (found.kind, found.metadata) == (expected.kind, expected.metadata)
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert np.ascontiguousarray(found.arrays[name]).tobytes() == (
            np.ascontiguousarray(array).tobytes()
        ), name


CERTIFICATE = pa.certify(X)


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
