"""Files: what was saved comes back, damage and forgery are refused, and nothing is executed."""

import copy
import json
import os
import re
import stat
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import forged_files as forged
import polyattn as pa
from oracle import refused
from polyattn.errors import FileFormatError, InvalidInput, InvalidType, PolyattnError

P = pa.programs
X, Y = forged.X, forged.Y
ONE = pa.LinearAttention([[1.5]], [[-0.25]], "causal")
ESCAPE = "\x1b]0;owned\x07\x1b[31m"


@pytest.fixture(scope="module")
def things():
    return {name: make() for name, make in forged.THINGS.items()}


@pytest.fixture(scope="module")
def good(things, tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    return {name: forged.good_file(thing, folder) for name, thing in things.items()}


def load(content, path):
    path.write_bytes(content)
    return pa.load(path)


@pytest.mark.parametrize("name", forged.THINGS)
def test_what_is_loaded_holds_and_does_the_same(name, things, good, tmp_path):
    thing, loaded = things[name], load(good[name], tmp_path / "file")
    assert (type(loaded), str(loaded)) == (type(thing), str(thing))
    for same in ("to_dict", "to_full_dict"):
        assert not hasattr(thing, same) or getattr(loaded, same)() == getattr(thing, same)()
    assert forged.contents(forged.good_file(loaded, tmp_path)) == forged.contents(good[name])
    np.testing.assert_equal(forged.answers(loaded), forged.answers(thing))
    if isinstance(thing, pa.Moments | pa.TriangularFactor):
        # Sums go on after loading as if they had never left.
        kept = thing.copy()
        for sums in (loaded, kept):
            sums.update(X, Y if sums.mode == "last" else forged.TOKENS)
        found = (forged.contents(forged.good_file(sums, tmp_path)) for sums in (loaded, kept))
        assert next(found) == next(found)
    if name == "Turing machine":
        beaver = P.machines.busy_beaver(2)
        assert loaded.run(beaver, []) == thing.run(beaver, []) == beaver.run([0] * 4)


def test_loaded_estimators_go_on_as_if_they_had_never_left(things, good, tmp_path):
    streams = {"stream": Y, "direct": Y, "scaler": Y, "classes of a stream": forged.TEXT}
    for name, y in streams.items():
        models = load(good[name], tmp_path / "model"), copy.deepcopy(things[name])
        found = [forged.answers(each.partial_fit(-0.5 * X, y)) for each in models]
        np.testing.assert_equal(*found)
    dual = load(good["dual"], tmp_path / "model")
    with pytest.raises(InvalidInput, match="partial_fit"):
        dual.set_params(solver="auto").partial_fit(X, Y[:, 0])


def bits(things):
    """Lines of all that things answer, with types and shapes."""
    for name, thing in things.items():
        for method, answer in forged.answers(thing).items():
            yield f"{name} {method} {answer.dtype.str} {answer.shape} {answer.tobytes().hex()}"


PROGRAM = """
import sys, polyattn as pa
loaded = {name: pa.load(name) for name in sys.argv[1:2]}
assert "sklearn" not in sys.modules
loaded |= {name: pa.load(name) for name in sys.argv[2:]}
from test_files import bits
print(*bits(loaded), sep="\\n")
"""


def test_a_fresh_process_answers_the_same(things, good, tmp_path):
    """And loads scikit-learn only for what needs it."""
    names = ["layer", *forged.MODELS]
    for name in names:
        (tmp_path / name).write_bytes(good[name])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*bits({name: things[name] for name in names})]


class Own(pa.LinearAttentionRegressor):
    """Another class of the same fields."""


def fitted(X=X, **options):
    return forged.REGRESSOR(**options).fit(X, Y)


def mixed_layouts():
    square = np.random.default_rng(0).standard_normal((20, 5, 5))
    model = make_pipeline(forged.SCALER(), forged.REGRESSOR(ridge=1.0, layout="channels_first"))
    return model.fit(square, square[:, 0, 0])


PIPELINE = forged.MODELS["pipeline"]
UNSAVED = [
    (forged.REGRESSOR, "fit"), (lambda: make_pipeline(forged.SCALER()), "fit"),
    (pa.SoftmaxAttentionRegressor, "fit"), (LinearRegression, "LinearRegression"),
    (lambda: make_pipeline(FunctionTransformer(), forged.REGRESSOR()).fit(X, Y), "FunctionTrans"),
    (lambda: Own().fit(X, Y), "Own"), (mixed_layouts, "layout"),
    (lambda: fitted(random_state=np.random.default_rng(0)), "random_state"),
    (lambda: fitted().set_params(mode="up"), "mode"),
    (lambda: Pipeline([("s", forged.SCALER())], memory="cache").fit(X), "memory"),
    (lambda: fitted(form=pa.Form(query=lambda x: x**2)), "form"),
    (lambda: PIPELINE().set_params(sequenceimputer__add_indicator=False), "scaler"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "word"), UNSAVED)
def test_what_no_file_keeps_is_named_and_leaves_no_file(make, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolyattnError, match=word):
        pa.save(make(), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_every_changed_byte_and_every_cut_of_a_file_is_noticed(tmp_path):
    path, content = tmp_path / "layer", forged.good_file(ONE, tmp_path)
    damaged = [content[:length] for length in range(len(content))]
    damaged += [content + more for more in (b"\0", b" ", content)]
    for index in range(len(content)):
        other = bytearray(content)
        other[index] ^= 1 << (5 * index + index // 8) % 8
        damaged.append(bytes(other))
    for other in damaged:
        with pytest.raises(FileFormatError, match=re.escape(str(path))):
            load(other, path)


def plain_safetensors(metadata=None, kind=np.float64):
    return save({"attn": np.ones((1, 2, 2), kind)}, metadata=metadata)


#: Contents of files of others, by what they are.
FOREIGN = {
    "empty": b"", "text": b"attn: 1.0\n" * 50, "JSON": b'{"a": 1}', "a huge header": b"\xff" * 1000,
    "safetensors": plain_safetensors(), "those of torch": plain_safetensors({"format": "pt"}),
    "no description": plain_safetensors({"format": "polyattn", "version": "1"}),
    "another type": plain_safetensors({"format": "polyattn", "version": "1"}, np.float16),
}  # fmt: skip
FOREIGN |= {
    f"version {version!r}": forged.sealed({}, {"kind": "moments", "metadata": {}}, version)
    for version in ("2", "10", "1.5", "", "one", "-1", "²", "0")
}
FOREIGN |= {
    f"description {text[:20]!r}": forged.sealed({}, text)
    for text in (
        " ", "{", "[]", '{"metadata": {}}', '{"kind": [], "metadata": {}}', "[" * 100_000,
        '{"kind": "moments", "metadata": 3}', '{"kind": NaN}',
        '{"kind": "moments", "metadata": {"n": ' + "9" * 5000 + "}}",
        '{"kind": "moments", "kind": "layer", "metadata": {}}',
        '{"kind": "hologram", "metadata": {}}',
    )
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_others_and_of_other_versions_are_refused(name, tmp_path):
    with pytest.raises(FileFormatError, match=re.escape(str(tmp_path / "foreign"))) as refusal:
        load(FOREIGN[name], tmp_path / "foreign")
    assert len(str(refusal.value)) < 600


RECORDS = [name for name in forged.THINGS if not name.startswith("certificate")]
# What a file may lack: sums that files of before have not, and what a form need not have.
OPTIONAL = ("target_means", "target_spreads", "skip", "intercept")
WRONG = [None, -1, 2.5, 10**12, "x" * 300, [], {"x": 0}, [[0.5]], forged.INFINITE]


VERBS = {
    "fit": "predict F data.npz -o o.npy; audit F data.npz; report F",
    "moments": "fit F; merge F -o s.safetensors; certify F; fit data.npz --checkpoint F",
    "certificate": "certify data.npz --certificate F; report F",
    "softmax": "audit F data.npz",
    "pipeline": "predict F data.npz -o o.npy; report F data.npz",
}


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_refuses_what_load_refuses(name, good, run):
    np.savez("data.npz", X=X, Y=Y)
    own = ("n_dims",) if name in ("moments", "certificate") else ("remark",)
    bad = "bad.json" if name == "certificate" else "bad.safetensors"
    for content in (good[name][:-9], b"notes", b"", forged.claiming(good[name], own, 10**30)):
        Path(bad).write_bytes(content)
        for command in VERBS[name].split("; "):
            refused(run(*command.replace("F", bad).split()), bad)
    assert not Path("o.npy").exists()


def test_sums_of_older_files_are_read(good, things, tmp_path):
    arrays, described = forged.opened(good["moments"])
    old = {name: each for name, each in arrays.items() if not name.startswith("target_")}
    found = pa.fit(statistics=load(forged.sealed(old, described), tmp_path / "old.safetensors"))
    np.testing.assert_array_equal(found.coef, pa.fit(statistics=things["moments"]).coef)
    assert found.r2 is None


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_of_a_file_is_checked_and_the_wrong_one_is_named(name, good, tmp_path):
    path = tmp_path / "forged.safetensors"
    arrays, described = forged.opened(good[name])
    metadata = described["metadata"]

    def refused(arrays, described, named=""):
        try:
            thing = load(forged.sealed(arrays, described), path)
        except FileFormatError as refusal:
            text = str(refusal)
            assert path.name in text
            assert named in text
            assert len(text) < 2000
            return True
        # What passes must be usable.
        repr((repr(thing), str(thing)))
        pa.save(thing, path)
        return False

    assert refused(arrays, described | {"remark": 1})
    assert refused(arrays, described | {"metadata": metadata | {"remark": 1}}, "remark")
    assert refused(arrays | {"more": np.ones(2)}, described, "more")
    for field, array in arrays.items():
        rest = {key: each for key, each in arrays.items() if key != field}
        assert refused(rest, described) or field.split(".")[-1] in OPTIONAL, field
        if array.size:
            with np.errstate(over="ignore"):
                wrong = [array.astype(np.float32), array[None], array.reshape(-1)[:-1].copy()]
            assert all(refused(rest | {field: each}, described) for each in wrong), field
            nan = array.astype(float)
            nan.reshape(-1)[:1] = np.nan
            refused(rest | {field: nan}, described)  # errors that were not measured are NaN
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


OUT_OF_ORDER, CLASSES = ["b", "a", "c"], ("fitted", "classes")
CONTRADICTIONS = [
    ("certificate", ("n_features",), 7), ("certificate", ("n_dims",), 10**30),
    ("certificate", ("n_rows",), 0), ("certificate", ("note",), 3), ("certificate", ("rank",), 99),
    ("certificate", ("lambda_min",), forged.INFINITE),
    ("certificate", ("verdict",), "not_identifiable"),
    ("certificate", ("sentence",), "All is well"),
    ("fit", ("rank",), 10**9), ("fit", ("n_features",), 7),
    ("audit", ("certificate", "rank"), 17), ("audit", ("certificate", "verdict"), "undecided"),
    ("moments", ("n_rows",), -1), ("moments", ("n_positive",), 10**6),
    ("learned softmax", ("outcome", "name"), "proved"), ("queries", ("layer",), None),
    ("rules", ("findings", "n_traces"), 6), ("rules", ("findings", "n_folds"), 99),
    ("coefficients", ("outcome", "name"), "learned"), ("certified", ("proved",), True),
    ("certified", ("verdict",), "proved"), ("certified", ("confidence",), 2.0),
    ("layer of a form", ("form", "decay"), [0.5, 2.0]), ("layer of a form", ("form", "lags"), 9),
    ("layer of a form", ("form", "query"), {"map": {"name": "eval"}}),
    ("layer of a form", ("head_scales",), [0, 2]), ("rotary", ("rotary",), 10000.0),
    ("linearised", ("methods",), ["fit", "token_wise", "a", "b"]),
    ("text", ("parameters", "ridge"), -1.0), ("text", ("parameters", "colour"), 1),
    ("text", ("parameters", "class_weight"), {"weights": [["north", -1]]}),
    ("text", (*CLASSES, "values"), OUT_OF_ORDER), ("text", (*CLASSES, "values"), ["a", "b"]),
    ("text", (*CLASSES, "dtype"), "O"), ("text", (*CLASSES, "dtype"), "<U999999999"),
    ("large numbers", ("fitted", "goes_on"), True), ("sets", ("fitted", "multilabel"), False),
    ("sets", (*CLASSES, "values"), [0, 2]),
    ("one column", CLASSES, {"dtype": "<U1", "values": ["a", "b"]}),
    ("dual", ("fitted", "evidence", "moments", "n_dims"), 3), ("scaler", ("fitted", "weight"), 0.0),
    ("imputer", ("fitted", "indicator_features"), [0, 2]), ("pipeline", ("steps",), []),
    ("pipeline", ("steps", 0, "name"), "sequencescaler"),
    ("pipeline", ("steps", 0, "step", "parameters", "add_indicator"), False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "value"), CONTRADICTIONS)
def test_claims_that_contradict_each_other_are_refused(name, place, value, good, tmp_path):
    with pytest.raises(FileFormatError, match="claims"):
        load(forged.claiming(good[name], place, value), tmp_path / "claims")


def test_what_json_would_drop_is_refused_and_ok_cannot_be_given(good, tmp_path):
    path = tmp_path / "file"
    # Of a key that stands twice JSON would keep the last.
    arrays, described = forged.opened(good["softmax"])
    twice = json.dumps(described).replace('"kind"', f'"kind": "{described["kind"]}", "kind"', 1)
    with pytest.raises(FileFormatError, match="twice"):
        load(forged.sealed(arrays, twice), path)
    # A file can take ok away, but not give it.
    for name, ok in (("few queries", True), ("fit", False)):
        assert not load(forged.claiming(good[name], ("outcome", "ok"), ok), path).outcome.ok
    with pytest.raises(FileFormatError, match="moments"):
        pa.Moments.load(path)


@pytest.mark.parametrize(
    ("field", "at", "value"),
    [
        ("trace_table", (0, 0), 1), ("trace_table", (0, 0), -1), ("trace_table", (0, 1), 2**62),
        ("trace_table", (0, 1), 0), ("trace_table", (0, 3), 2), ("fitted", 0, -1),
        ("fitted", -1, 10**6), ("fitted", 1, 0), ("pairs", (0, 0), 99), ("pairs", (0, 0), 1),
        ("trace_tokens_0", (0, 0), 10**9), ("trace_labels_0", (0, 0), 1e200),
    ],
)  # fmt: skip
def test_traces_that_cannot_be_are_refused(field, at, value, good, tmp_path):
    arrays, described = forged.opened(good["coefficients"])
    wrong = arrays[field].copy()
    wrong[at] = value
    with pytest.raises(FileFormatError, match=r"trace|fitted|pairs"):
        load(forged.sealed(arrays | {field: wrong}, described), tmp_path / "file")


def test_programs_too_large_to_run_are_neither_loaded_nor_saved(tmp_path):
    content = forged.good_file(P.compile(P.universal_dfa(2, 3, 4, style="one_hot")), tmp_path)
    with pytest.raises(FileFormatError, match=r"large.*max_length"):
        load(forged.claiming(content, ("schema", "sizes", "max_length"), 10**6), tmp_path / "large")
    with pytest.raises(InvalidInput, match="sizes"):
        pa.save(P.compile(P.universal_dfa(30, 30, 20_000, style="one_hot")), tmp_path / "large")


PLAIN = "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }"
LIES = [forged.with_header(text, bytes(16)) for text in forged.HEADERS]
LIES += [
    forged.with_header(PLAIN % "(2, 2)", b"12"), forged.with_header(PLAIN % "(1,)", bytes(9)),
    b"\x93NUM", b"\x93NUMPY\x09\x00", b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
    b"\x93NUMPY\x01\x00\x0f\x00{'descr': '<f8",
    forged.with_header(PLAIN % "(1,)", bytes(8)).replace(b"Y\x01\x00", b"Y\x01\x01"),
]  # fmt: skip


def test_array_files_that_lie_are_refused_in_one_line(run, tmp_path):
    path = tmp_path / "lie.npy"
    for content in LIES:
        path.write_bytes(content)
        refused(run("fit", path), path.name)
    path = tmp_path / "lie.npz"
    short = {"X.npy": forged.with_header(PLAIN % (10**11,), bytes(80))}
    for members in (short, {"X.npy": forged.array_file(X), "X": forged.array_file(X)}):
        path.write_bytes(forged.packed(members))
        refused(run("fit", path), path.name)


def test_odd_packings_are_refused_and_bombs_not_unpacked(run, tmp_path):
    path = tmp_path / "damaged.npz"
    for packing in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED):
        path.write_bytes(forged.packed({"X.npy": forged.array_file(X)}, packing))
        assert run("certify", path).exit_code == (0 if packing == zipfile.ZIP_DEFLATED else 1)
    header = forged.HEADERS[0].replace("1000000000000", str(280 << 17))
    with zipfile.ZipFile(path, "w", 8, compresslevel=1) as file, file.open("X.npy", "w") as member:
        member.write(forged.with_header(header))
        for _ in range(280):
            member.write(bytes(1 << 20))
    assert path.stat().st_size < 3_000_000
    tracemalloc.start()
    refused(run("fit", path), path.name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"rules": {"A": {"0": "L" * 900_000}}}), json.dumps({"k" * 500_000: 1}),
        json.dumps({"rules": "1RB1LB_" * 100_000}), json.dumps({"kind": ["x"] * 90_000}),
    ],
    ids=lambda content: content[:20],
)  # fmt: skip
def test_large_machines_are_refused_at_once(content, tmp_path):
    path, start = tmp_path / "machine.json", time.process_time()
    path.write_text(content)
    with pytest.raises(FileFormatError, match=r"machine\.") as refusal:
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
    (tmp_path / "learned.safetensors").write_bytes(forged.sealed(arrays, described))
    np.savez(tmp_path / "names.npz", **{f"X{ESCAPE}": X})
    for arguments in (
        ("program", "show", "machine.json"), ("show", "learned.safetensors"),
        ("fit", "names.npz"), ("show", red), (red,), (f"--{ESCAPE}",),
        ("fit", "x", "--ridge", ESCAPE), ("fit", "x", "-o", f"{red}/x"),
        ("program", "run", ESCAPE, "0"),
    ):  # fmt: skip
        done = run(*arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
        assert "\\x1b" in done.output
        assert not {"\x1b", "\x07"} & set(done.output), arguments


HEADS = [pa.LinearAttention(np.ones((n, 2, 2)), np.ones((n, 2, 1))) for n in (1, 2, 3)]


@pytest.mark.parametrize("thing", [ONE, pa.certify(X)], ids=["layer", "certificate"])
def test_a_path_that_names_no_file_is_refused(thing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    for path, error in (
        (Path(), InvalidInput), ("folder/", InvalidInput), ("link", InvalidInput),
        ("", InvalidInput), ("a\0b", InvalidInput), (None, InvalidType), (b"layer", InvalidType),
    ):  # fmt: skip
        for call in (lambda p: pa.save(thing, p), pa.load, thing.report):
            with pytest.raises(error, match=r"\bpath\b"):
                call(path)
    own, others = (".safetensors", ".json") if thing is ONE else (".json", ".safetensors")
    for path, error, words in (
        ("pipe", InvalidInput, "pipe"), ("no/where", FileNotFoundError, "'no'"),
        ("n" * 256, OSError, r"n{256}"), ("m.pkl", InvalidInput, rf"m\{own}"),
        ("m" + others.upper(), InvalidInput, rf"m\{own}"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            pa.save(thing, path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        pa.load("nowhere")
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "pipe"]
    for name in (f"m{own}", "m", "m.v2", "Größe ½", "n" * 255):
        pa.save(thing, name)
        assert type(pa.load(name)) is type(thing)


def test_a_file_that_is_replaced_keeps_its_permissions_and_links_stay(tmp_path):
    path, there = tmp_path / "layer", tmp_path / "there"

    def mode():
        return stat.S_IMODE(path.stat().st_mode)

    path.touch()
    usual = mode()
    path.unlink()
    pa.save(HEADS[0], path)
    assert mode() == usual
    for other in (0o600, 0o777, 0o444):
        path.chmod(other)
        pa.save(HEADS[1], path)
        assert mode() == other
    there.mkdir()
    for name, behind in (("link", "there/layer"), ("second", "link"), ("dangling", "there/new")):
        (tmp_path / name).symlink_to(behind)
    for name, real in (("second", "layer"), ("second", "layer"), ("dangling", "new")):
        pa.save(HEADS[2], tmp_path / name)
        assert pa.load(there / real) == HEADS[2]
    assert all((tmp_path / name).is_symlink() for name in ("link", "second", "dangling"))
    assert sorted(os.listdir(there)) == ["layer", "new"]
