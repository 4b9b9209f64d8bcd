"""Files: what was saved comes back, damage and forgery are refused, and nothing is executed."""

import io
import json
import os
import re
import stat
import time
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import forged_files as forged
import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput, InvalidType

P = pa.programs
X, Y = forged.X, forged.Y
ONE = pa.LinearAttention([[1.5]], [[-0.25]], "causal")
ESCAPE = "\x1b]0;owned\x07\x1b[31m"


@pytest.fixture(scope="module")
def things():
    return {name: make() for name, make in forged.THINGS.items()}


@pytest.fixture(scope="module")
def good(things, tmp_path_factory):
    """The bytes of a good file of every kind."""
    path, found = tmp_path_factory.mktemp("good") / "good", {}
    for name, thing in things.items():
        pa.save(thing, path)
        found[name] = path.read_bytes()
    return found


def load(content, path):
    path.write_bytes(content)
    return pa.load(path)


# ------------------------------------------------------------------ round trips


@pytest.mark.parametrize("name", forged.THINGS)
def test_what_is_loaded_holds_and_does_the_same(name, things, good, tmp_path):
    thing, path = things[name], tmp_path / "file"
    loaded = load(good[name], path)
    assert type(loaded) is type(thing)
    pa.save(loaded, path)
    if name.startswith("certificate"):
        assert path.read_bytes() == good[name]
    else:
        (found, described), (expected, wanted) = map(forged.opened, (path.read_bytes(), good[name]))
        assert (described, found.keys()) == (wanted, expected.keys())
        for field, array in expected.items():
            # Bit for bit, the sign of zero included.
            assert (found[field].dtype, found[field].shape) == (array.dtype, array.shape)
            assert found[field].tobytes() == array.tobytes()
    context = {"context": np.ones((40, 4, 2))} if name == "layer of a form" else {}
    n_dims = getattr(thing, "n_dims", 2)
    given = forged.IDS if name == "fit of ids" else np.resize(X, (40, 4, n_dims))
    given = given if name == "fit of ids" else 1e-3 * given
    methods = ["predict", "transform", "__call__"] + ["predict_proba"] * ("log-loss" in name)
    for method in methods if getattr(thing, "layer", thing) is not None else []:
        if hasattr(thing, method) and not isinstance(thing, P.Learned):
            answers = [getattr(each, method)(given, **context) for each in (loaded, thing)]
            np.testing.assert_array_equal(*answers)
    if isinstance(thing, pa.Moments | pa.TriangularFactor):
        # Sums go on after loading as if they had never left.
        found = []
        for sums in (loaded, thing.copy()):
            sums.update(X, Y if sums.mode == "last" else forged.TOKENS)
            pa.save(sums, path)
            found.append(forged.opened(path.read_bytes()))
        np.testing.assert_equal(*found)
    if name == "Turing machine":
        beaver = P.machines.busy_beaver(2)
        assert loaded.run(beaver, []) == thing.run(beaver, []) == beaver.run([0] * 4)


# ------------------------------------------------------------------ damage


def test_every_changed_byte_and_every_cut_of_a_file_is_noticed(tmp_path):
    path = tmp_path / "layer"
    pa.save(ONE, path)
    content = path.read_bytes()
    damaged = [content[:length] for length in range(len(content))]
    damaged += [content + more for more in (b"\0", b" ", content)]
    for index in range(len(content)):
        other = bytearray(content)
        other[index] ^= 1 << (5 * index + index // 8) % 8
        damaged.append(bytes(other))
    for other in damaged:
        with pytest.raises(FileFormatError, match=re.escape(str(path))):
            load(other, path)


FOREIGN = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("attn: 1.0\n" * 50),
    "zeros": lambda path: path.write_bytes(bytes(1000)),
    "huge header": lambda path: path.write_bytes(b"\xff" * 1000),
    "JSON": lambda path: path.write_text('{"a": 1}'),
    "safetensors": lambda path: save_file({"attn": np.ones((1, 2, 2))}, path),
    "others": lambda path: save_file({"attn": np.ones((1, 2))}, path, metadata={"format": "pt"}),
    "no description": lambda path: save_file(
        {"attn": np.ones((1, 2, 2))}, path, metadata={"format": "polyattn", "version": "1"}
    ),
    "an unknown type": lambda path: path.write_bytes(
        (text := json.dumps({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]},
         "__metadata__": {"format": "polyattn", "version": "1"}}).encode()) and
        len(text).to_bytes(8, "little") + text + b"\0\0"
    ),
    **{f"version {version!r}": lambda path, version=version: path.write_bytes(
        forged.sealed({}, {"kind": "moments", "metadata": {}}, version))
       for version in ("2", "10", "1.5", "", "one", "-1", "²", "0")},
    **{f"description {text[:20]!r}": lambda path, text=text: path.write_bytes(
        forged.sealed({}, text))
       for text in (" ", "{", "[]", '{"metadata": {}}', '{"kind": [], "metadata": {}}',
                    "[" * 100_000, '{"kind": "moments", "metadata": 3}', '{"kind": NaN}',
                    '{"kind": "moments", "metadata": {"n": ' + "9" * 5000 + "}}",
                    '{"kind": "moments", "metadata": {"n": ' + "[" * 900 + "]" * 900 + "}}",
                    '{"kind": "moments", "kind": "layer", "metadata": {}}',
                    '{"kind": "hologram", "metadata": {}}')},
}  # fmt: skip


def test_files_of_others_and_of_other_versions_are_refused(tmp_path):
    path = tmp_path / "foreign"
    for name, write in FOREIGN.items():
        write(path)
        with pytest.raises(FileFormatError, match=re.escape(str(path))) as refusal:
            pa.load(path)
        assert len(str(refusal.value)) < 600, name
    pa.save(ONE, path)
    with pytest.raises(FileFormatError):
        pa.Moments.load(path)


# ------------------------------------------------------------------ forgery

RECORDS = [name for name in forged.THINGS if not name.startswith("certificate")]
# What a file may lack: sums that files of before have not, and what a form need not have.
OPTIONAL = ("target_means", "target_spreads", "skip", "intercept")
WRONG = [None, -1, 2.5, 10**12, "x" * 300, [], {"x": 0}, [[0.5]], forged.INFINITE]


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_of_a_file_is_checked_and_the_wrong_one_is_named(name, good, tmp_path):
    path = tmp_path / "forged.safetensors"
    arrays, described = forged.opened(good[name])

    def refused(arrays, described, *named):
        try:
            thing = load(forged.sealed(arrays, described), path)
        except FileFormatError as refusal:
            text = str(refusal)
            assert path.name in text
            assert len(text) < 2000
            assert not named or any(each in text for each in named), (named, text)
            return True
        # What passes must be usable.
        repr((repr(thing), str(thing)))
        pa.save(thing, path)
        return False

    assert refused(arrays, described | {"remark": 1})
    metadata = described["metadata"]
    assert refused(arrays, described | {"metadata": metadata | {"remark": 1}}, "remark")
    assert refused(arrays | {"more": np.ones(2)}, described, "more")
    for field, array in arrays.items():
        inner = field.split(".")[-1]
        nan = array.astype(float)
        nan.reshape(-1)[:1] = np.nan
        with np.errstate(over="ignore"):
            wrong = [array.astype(np.float32), array[None], array.reshape(-1)[:-1].copy()]
        # Errors of methods that were not measured are NaN, and of no size.
        wrong += [nan] if array.size and not np.any(np.isnan(array)) else []
        passed = [w for w in wrong if array.size and not refused(arrays | {field: w}, described)]
        assert not [w for w in passed if w is not nan], field
        rest = {key: each for key, each in arrays.items() if key != field}
        assert refused(rest, described) or inner in OPTIONAL, field
    n_refused, n_tried = 0, 0
    # Figures of a phase are whatever it counted.
    figures = [each["figures"] for each in metadata.get("phases", []) if "figures" in each]
    leaves = [place for place in forged.places(metadata) if place[0] not in figures]
    for parent, key in leaves[:: max(1, len(leaves) // 10)]:
        kept = parent[key]
        for value in WRONG:
            if type(value) is type(kept) or (value is None or kept is None):
                continue
            parent[key] = value
            n_refused += refused(arrays, described) or {type(kept), type(value)} <= {int, float}
            n_tried += 1
            parent[key] = kept
    assert n_refused >= 0.9 * n_tried, (n_refused, n_tried)


def test_claims_that_contradict_each_other_are_refused(good, tmp_path):
    path = tmp_path / "certificate.json"
    content = json.loads(good["certificate"])
    for field, value in (
        ("n_features", 7), ("n_dims", 10**30), ("n_rows", 0), ("note", 3), ("rank", 99),
        ("lambda_min", forged.INFINITE), ("lambda_max", forged.INFINITE),
        ("rounding", forged.INFINITE), ("verdict", "not_identifiable"), ("sentence", "All is well"),
    ):  # fmt: skip
        with pytest.raises(FileFormatError, match=r"certificate\.json"):
            load(forged.sealed_document(content | {field: value}), path)
        with pytest.raises(FileFormatError, match=r"certificate\.json"):
            load(json.dumps(content | {field: value}).encode(), path)
    for name, place, value in (
        ("fit", ("rank",), 10**9), ("fit", ("n_features",), 7),
        ("audit", ("certificate", "rank"), 17), ("audit", ("certificate", "verdict"), "undecided"),
        ("moments", ("n_rows",), -1), ("moments", ("n_positive",), 10**6),
        ("learned softmax", ("outcome", "name"), "proved"), ("queries", ("layer",), None),
        ("rules", ("findings", "n_traces"), 6), ("rules", ("findings", "n_folds"), 99),
        ("coefficients", ("outcome", "name"), "learned"), ("certified", ("proved",), True),
        ("certified", ("verdict",), "proved"), ("certified", ("confidence",), 2.0),
        ("layer of a form", ("form", "decay"), [0.5, 2.0]),
        ("layer of a form", ("form", "lags"), 9),
        ("layer of a form", ("form", "query"), {"map": {"name": "eval"}}),
        ("layer of a form", ("head_scales",), [0, 2]), ("rotary", ("rotary",), 10000.0),
        ("linearised", ("methods",), ["fit", "token_wise", "a", "b"]),
    ):  # fmt: skip
        arrays, described = forged.opened(good[name])
        inner = described["metadata"]
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        with pytest.raises(FileFormatError, match=re.escape(path.name)):
            load(forged.sealed(arrays, described), path)
    # Of a key that stands twice JSON would keep the last.
    arrays, described = forged.opened(good["softmax"])
    twice = json.dumps(described).replace('"kind"', f'"kind": "{described["kind"]}", "kind"', 1)
    with pytest.raises(FileFormatError, match="twice"):
        load(forged.sealed(arrays, twice), path)
    # A file can take ok away, but not give it.
    for name, ok in (("few queries", True), ("fit", False)):
        arrays, described = forged.opened(good[name])
        described["metadata"]["outcome"]["ok"] = ok
        assert not load(forged.sealed(arrays, described), path).outcome.ok


def test_traces_that_cannot_be_are_refused(good, tmp_path):
    arrays, described = forged.opened(good["coefficients"])
    for field, at, value in (
        ("trace_table", (0, 0), 1), ("trace_table", (0, 0), -1), ("trace_table", (0, 1), 2**62),
        ("trace_table", (0, 1), 0), ("trace_table", (0, 3), 2), ("fitted", 0, -1),
        ("fitted", -1, len(arrays["fitted"])), ("fitted", 1, 0), ("pairs", (0, 0), 99),
        ("pairs", (0, 0), 1), ("trace_tokens_0", (0, 0), 10**9), ("trace_labels_0", (0, 0), 1e200),
    ):  # fmt: skip
        wrong = arrays[field].copy()
        wrong[at] = value
        with pytest.raises(FileFormatError, match=r"trace|fitted|pairs"):
            load(forged.sealed(arrays | {field: wrong}, described), tmp_path / "file")


def test_programs_too_large_to_run_are_neither_loaded_nor_saved(tmp_path):
    path = tmp_path / "large.safetensors"
    pa.save(P.compile(P.universal_dfa(2, 3, 4, style="one_hot")), path)
    arrays, described = forged.opened(path.read_bytes())
    described["metadata"]["schema"]["sizes"]["max_length"] = 10**6
    with pytest.raises(FileFormatError, match=r"large.*max_length"):
        load(forged.sealed(arrays, described), path)
    with pytest.raises(InvalidInput, match="sizes"):
        pa.save(P.compile(P.universal_dfa(30, 30, 20_000, style="one_hot")), path)


# ------------------------------------------------------------------ arrays, machines, the screen


def refusal_of(done, path):
    """The one line with which a verb refuses a file."""
    assert isinstance(done.exception, SystemExit), done.exc_info
    assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1)
    assert path.name in done.stderr
    return done.stderr


def npy(array):
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()


def archive(path, members, packing=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", packing) as file:
        for name, content in members.items():
            file.writestr(name, content)


def test_array_files_that_lie_are_refused_in_one_line(run, tmp_path):
    path, plain = tmp_path / "lie.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }"
    contents = [forged.with_header(text, bytes(16)) for text in forged.HEADERS]
    contents += [
        forged.with_header(plain % "(2, 2)", b"12"), forged.with_header(plain % "(1,)", bytes(9)),
        b"\x93NUM", b"\x93NUMPY\x09\x00", b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        b"\x93NUMPY\x01\x00\x0f\x00{'descr': '<f8",
        forged.with_header(plain % "(1,)", bytes(8)).replace(b"Y\x01\x00", b"Y\x01\x01"),
    ]  # fmt: skip
    for content in contents:
        path.write_bytes(content)
        refusal_of(run("fit", path), path)
    path = tmp_path / "short.npz"
    archive(path, {"X.npy": forged.with_header(plain % (10**11,), bytes(80))})
    refusal_of(run("fit", path), path)
    archive(path, {"X.npy": npy(X), "X": npy(X)})
    refusal_of(run("fit", path), path)


def test_odd_packings_are_refused_and_bombs_not_unpacked(run, tmp_path):
    path = tmp_path / "damaged.npz"
    for packing in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED):
        archive(path, {"X.npy": npy(X)}, packing)
        assert run("certify", path).exit_code == (0 if packing == zipfile.ZIP_DEFLATED else 1)
    header = forged.HEADERS[0].replace("1000000000000", str(280 << 17))
    with zipfile.ZipFile(path, "w", 8, compresslevel=1) as file, file.open("X.npy", "w") as member:
        member.write(forged.with_header(header))
        for _ in range(280):
            member.write(bytes(1 << 20))
    assert path.stat().st_size < 3_000_000
    tracemalloc.start()
    refusal_of(run("fit", path), path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


def test_bombs_and_large_machines_are_refused_at_once(tmp_path):
    for place in ("rules: {{A: {{0: [A, 0, {}]}}}}", "transitions: {}", "{}"):
        lists = ["&a0 [lol]"]
        lists += [f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
        (tmp_path / "bomb.yaml").write_text(place.format(f"[{', '.join(lists)}]"))
        with pytest.raises(FileFormatError, match="a0") as refusal:
            P.machines.load_machine(tmp_path / "bomb.yaml")
        assert len(str(refusal.value)) < 500
    path = tmp_path / "machine.json"
    for content in (
        {"rules": {"A": {"0": "L" * 900_000}}}, {"rules": "1RB1LB_" * 100_000},
        {"transitions": "a" * 500_000}, {"k" * 500_000: 1}, {"kind": ["x"] * 90_000},
    ):  # fmt: skip
        path.write_text(json.dumps(content))
        start = time.process_time()
        with pytest.raises(FileFormatError) as refusal:
            P.machines.load_machine(path)
        assert time.process_time() - start < 8
        assert len(str(refusal.value)) < 5000


def test_what_a_terminal_would_obey_is_shown_escaped(run, good, tmp_path):
    red = str(tmp_path / f"red{ESCAPE}")
    (tmp_path / "machine.json").write_text(
        json.dumps({"name": ESCAPE, "transitions": [[0, 1], [1, 0]]})
    )
    arrays, described = forged.opened(good["learned softmax"])
    described["metadata"]["phases"][0] |= {"name": f"{ESCAPE}[/]", "sentence": "[red]{0}[/blue]"}
    described["metadata"]["outcome"]["sentence"] = f"All is well. {ESCAPE}"
    (tmp_path / "learned.safetensors").write_bytes(forged.sealed(arrays, described))
    np.savez(tmp_path / "names.npz", **{f"X{ESCAPE}": X})
    for arguments in (
        ("program", "show", "machine.json"), ("show", "learned.safetensors"),
        ("fit", "names.npz"), ("show", red), ("fit", red + ".npz"), (red,), (f"--{ESCAPE}",),
        ("fit", "x", "--ridge", ESCAPE), ("fit", "x", "-o", f"{red}/x"), ("reproduce", ESCAPE),
        ("program", "run", ESCAPE, "0"),
    ):  # fmt: skip
        done = run(*arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
        text = done.stdout + done.stderr
        assert "\\x1b" in text
        assert not {"\x1b", "\x07"} & set(text), arguments


# ------------------------------------------------------------------ places

HEADS = [pa.LinearAttention(np.ones((n, 2, 2)), np.ones((n, 2, 1))) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("thing", [ONE, pa.certify(X)], ids=["layer", "certificate"])
def test_a_path_that_names_no_file_is_refused(thing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    for path, error in (
        (".", InvalidInput), (Path(), InvalidInput), ("folder/", InvalidInput),
        ("link", InvalidInput), ("", InvalidInput), ("a\0b", InvalidInput), (None, InvalidType),
        (3, InvalidType), (b"layer", InvalidType), ("no/where", (FileNotFoundError, InvalidInput)),
    ):  # fmt: skip
        for call in (lambda p: pa.save(thing, p), pa.load, thing.report):
            with pytest.raises(error) as refusal:
                call(path)
            assert re.search(r"\bpath\b|'no'", str(refusal.value)) or path == "no/where"
    with pytest.raises(InvalidInput, match="pipe"):
        pa.save(thing, "pipe")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        pa.load("nowhere")
    own = ".safetensors" if thing is ONE else ".json"
    for suffix in (".pkl", ".JSON", ".npz", ".parquet", ".safetensors"):
        if suffix.lower() != own:
            with pytest.raises(InvalidInput, match=rf"m\{own}"):
                pa.save(thing, f"m{suffix}")
    for nothing in (None, 3, "layer", {"attn": 1}, np.eye(2), pa.LinearAttention):
        with pytest.raises(InvalidType, match="LinearAttention"):
            pa.save(nothing, "object")
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["folder", "link", "pipe"]
    for name in (f"m{own}", "m", "m.v2", "Größe ½", "n" * 255):
        pa.save(thing, name)
        assert type(pa.load(name)) is type(thing)
    with pytest.raises(OSError, match=r"n{256}"):
        pa.save(thing, "n" * 256)


def test_a_file_that_is_replaced_keeps_its_permissions_and_links_stay(tmp_path):
    (tmp_path / "plain").write_text("")
    path = tmp_path / "layer"
    pa.save(HEADS[0], path)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "layer")]
    assert modes[0] == modes[1]
    for mode in (0o600, 0o640, 0o777, 0o444):
        path.chmod(mode)
        pa.save(HEADS[1], path)
        assert stat.S_IMODE(path.stat().st_mode) == mode
    there = tmp_path / "there"
    there.mkdir()
    pa.save(HEADS[0], there / "layer")
    (tmp_path / "link").symlink_to("there/layer")
    (tmp_path / "second").symlink_to("link")
    pa.save(HEADS[1], tmp_path / "second")
    assert all((tmp_path / name).is_symlink() for name in ("second", "link"))
    assert pa.load(there / "layer") == HEADS[1]
    (tmp_path / "dangling").symlink_to("there/new")
    pa.save(HEADS[2], tmp_path / "dangling")
    assert pa.load(there / "new") == HEADS[2]
    assert sorted(os.listdir(there)) == ["layer", "new"]


def test_many_savers_of_one_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "layer"

    def save_often(layer):
        for _ in range(15):
            pa.save(layer, path)
            assert pa.load(path) in HEADS

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save_often, HEADS))
    assert os.listdir(tmp_path) == ["layer"]
