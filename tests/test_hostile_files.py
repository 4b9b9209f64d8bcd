"""Files made to mislead: each is refused by one sentence that names the file and the field."""

import io
import json
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save as save_arrays

import polyattn as pa
from polyattn.auditing.result import OF_OUTPUTS
from polyattn.certify.document import from_document, seal, to_document
from polyattn.cli.main import cli
from polyattn.errors import FileFormatError, InvalidInput, PolyattnError
from polyattn.files import records as files
from polyattn.fitting.fit_file import PROPORTION
from polyattn.programs.machines import load_machine
from polyattn.softmax.queries.result import AROUND
from polyattn.stats.statistics import SIZES
from rotary_cases import random_rotary

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 4, 2))
Y = pa.data.random_layer(2, 2, mode="last")(X) + 0.1 * RNG.standard_normal((40, 2))
FORM = pa.Form(
    mode="causal", decay=[0.5, 0.9], query=np.ones((3, 2)), key=[1], skip=True, intercept=True
)
P = pa.programs
MEMORY = P.associative_memory(2, 2)

# Fields that files of the first release lack.
NEWER = ("min_length", *PROPORTION, *OF_OUTPUTS, *AROUND)


def learned():
    task = pa.data.planted_softmax(60, 3, 2, random_state=0)
    return pa.learn_softmax(task.X, task.Y)


def with_heads(result):
    """The result once its heads were looked for: then a file holds them."""
    assert result.heads.n_heads > 0
    return result


def coefficients(n_traces=9):
    labelled = pa.data.with_wrong_labels(P.traces(MEMORY, n_traces))
    return P.learn(MEMORY.schema, labelled, "coefficients")


@pytest.fixture(scope="module")
def records():
    """A record of every kind."""
    things = {
        "layer": pa.data.random_layer(3, 2),
        "layer of a form": pa.data.random_layer(3, 2, form=FORM, n_context_dims=2),
        "softmax": pa.SoftmaxAttention(np.eye(3), np.ones((3, 2))),
        "rotary": random_rotary(),
        "moments": pa.Moments(2, 2).update(X, Y),
        "factor": pa.TriangularFactor(2, 2).update(X, Y),
        "fit": with_heads(pa.fit(X, Y, ridge="gcv")),
        "fit without heads": pa.fit(X, Y, solver="dual"),
        "audit": pa.audit(pa.data.random_layer(2, 2, mode="last"), X, Y),
        "learned": learned(),
        "queried": pa.learn_from_queries(pa.data.random_softmax_layer(3, n_heads=2), 3),
        "program": P.compile(P.universal_dfa(2, 3, 4)),
        "rules": P.learn(MEMORY.schema, P.traces(MEMORY, 5)),
        "coefficients": coefficients(),
        "certified": coefficients(60).certify(fresh=P.traces(MEMORY, 60, random_state=1)),
    }
    return {name: each.to_record() for name, each in things.items()}


def write_forged(path, kind, arrays, metadata, text=None):
    """A file with a valid digest, whatever it holds."""
    description = text or json.dumps({"kind": kind, "metadata": metadata})
    digest = files._digest(arrays, "1", description)
    header = {"format": "polyattn", "version": "1", "description": description, "digest": digest}
    path.write_bytes(save_arrays(arrays, metadata=header))


# Records -----------------------------------------------------------------------------------------

WRONG_FIELDS = [
    ("layer", ["mode"], 3), ("layer", ["bias"], 1), ("layer", ["mode"], ["last"]),
    ("layer of a form", ["form"], []), ("layer of a form", ["form", "decay"], [0.5, 2.0]),
    ("layer of a form", ["form", "lags"], 10**12), ("layer of a form", ["form", "colour"], 1),
    ("layer of a form", ["form", "query"], {"map": {"name": "eval"}}),
    ("layer of a form", ["form", "query"], {"matrix": [[1.0], [2.0, 3.0]]}),
    ("layer of a form", ["form", "key"], {"slice": [0, 1, 0]}),
    ("layer of a form", ["form", "key"], [10**12]), ("layer of a form", ["form", "skip"], 1),
    ("layer of a form", ["n_dims"], 10**12), ("layer of a form", ["n_context_dims"], 10**12),
    ("layer of a form", ["head_scales"], [0, 2]), ("layer of a form", ["head_scales"], "01"),
    ("layer", ["n_dims"], 10**12), ("softmax", ["mode"], "up"), ("rotary", ["mode"], "up"),
    ("rotary", ["rotary"], 10000.0), ("rotary", ["bias"], 1), ("moments", ["n_dims"], 10**12),
    ("moments", ["n_rows"], "many"), ("moments", ["n_rows"], -1), ("moments", ["n_rows"], 1.5),
    ("moments", ["total_weight"], -1.0), ("moments", ["total_weight"], None),
    ("moments", ["max_length"], {}), ("moments", ["token_exponent"], 10**9),
    ("moments", ["n_positive"], 10**6), ("moments", ["n_dims"], 10**5),
    ("factor", ["n_outputs"], 10**9), ("factor", ["target_exponent"], "x"),
    ("fit", ["outcome", "name"], "certain"), ("fit", ["outcome"], "unique"),
    ("fit", ["risk"], "0"), ("fit", ["rank"], 10**9), ("fit", ["n_features"], 7),
    ("fit", ["heads", "lost"], []), ("fit", ["ridge_path"], "guess"), ("fit", ["n_dims"], 3),
    ("fit", ["statistics", "kind"], "fit_result"),
    ("fit", ["statistics", "metadata", "mode"], "full"), ("fit", ["random_state"], -3),
    ("fit without heads", ["heads"], {"lost": 0.0, "risk_gap": None, "sentence": ""}),
    ("audit", ["risk"], -1.0), ("audit", ["consistent"], "yes"), ("audit", ["implied"], 3),
    ("audit", ["implied", "excess"], None), ("audit", ["certificate"], []),
    ("audit", ["certificate", "rank"], 17), ("audit", ["certificate", "verdict"], "undecided"),
    ("learned", ["outcome", "name"], "proved"), ("learned", ["validation_error"], "0.0"),
    ("learned", ["noise"], -1), ("learned", ["phases", 0, "seconds"], "soon"),
    ("learned", ["phases"], {}), ("learned", ["n_training"], True),
    ("queried", ["outcome", "name"], "proved"), ("queried", ["validation_error"], "0.0"),
    ("queried", ["noise"], -1), ("queried", ["doubt"], "large"), ("queried", ["doubt"], [3]),
    ("queried", ["phases", 0, "seconds"], "soon"), ("queried", ["phases", 0, "figures"], 3),
    ("queried", ["n_queries"], True), ("queried", ["error"], {"type": "RuntimeError"}),
    ("queried", ["layer"], 3), ("queried", ["layer", "mode"], "up"), ("queried", ["layer"], None),
    ("program", ["terms"], {}), ("program", ["schema", "sizes", "max_length"], 1_000_000),
    ("program", ["schema", "sizes", "n_states"], 2.0), ("program", ["schema", "encoding"], []),
    ("program", ["terms", 0, "weight"], "1"), ("program", ["terms", 0, "patterns"], []),
    ("program", ["terms", 0, "patterns", 0, "attribute"], "n_dims"), ("program", ["name"], 3),
    ("program", ["terms", 0, "patterns", 0, "arguments"], [{"variable": "t", "offset": -(10**9)}]),
    ("rules", ["terms"], {}), ("rules", ["terms", 0, "weight"], "1"), ("rules", ["max_offset"], -1),
    ("rules", ["schema"], 3), ("rules", ["schema", "sizes", "n_keys"], 10**6),
    ("rules", ["traces", "schemas"], []), ("rules", ["traces", "schemas", 0, "encoding"], "x"),
    ("rules", ["traces", "schemas", 0, "sizes", "n_keys"], 5), ("rules", ["n_candidates"], "3"),
    ("rules", ["findings", "n_traces"], 6), ("rules", ["findings", "n_tokens"], 0),
    ("rules", ["findings", "n_folds"], 99), ("rules", ["findings", "gaps"], "none"),
    ("rules", ["findings", "mismatches"], [{"trace": 0}]), ("rules", ["findings", "rivals"], [3]),
    ("coefficients", ["outcome", "name"], "learned"), ("coefficients", ["ridge"], -1.0),
    ("coefficients", ["largest_error"], "0"), ("coefficients", ["traces", "schemas"], {}),
    ("coefficients", ["schema", "sizes", "n_keys"], 4),
    ("certified", ["verdict"], "proved"), ("certified", ["method"], "training"),
    ("certified", ["proved"], True), ("certified", ["n_traces"], 0),
    ("certified", ["outside_mass"], None), ("certified", ["confidence"], 2.0),
    ("certified", ["leaving"], {"trace": 1}), ("certified", ["leaving"], {"trace": 1, "row": 1}),
    ("certified", ["n_undecided"], 3), ("certified", ["rank"], 1.5),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "value"), WRONG_FIELDS)
def test_a_wrong_field_is_named_with_its_file(name, place, value, records, tmp_path):
    record = records[name]
    metadata = json.loads(json.dumps(record.metadata))
    inner = metadata
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path = tmp_path / "forged.safetensors"
    write_forged(path, record.kind, record.arrays, metadata)
    start = time.perf_counter()
    with pytest.raises(FileFormatError, match=r"forged\.safetensors") as refusal:
        pa.load(path)
    assert time.perf_counter() - start < 5
    words = {
        "n_rows": "n_positive|n_rows",
        "n_dims": "n_features|arrays|n_dims",
        "n_outputs": "factor",
        "layer": "layer|arrays",
        "heads": "heads|attn",
        "n_keys": "n_keys|trace_tokens",
    }
    named = [words.get(str(each), str(each)) for each in place if isinstance(each, str)]
    message = str(refusal.value)
    assert any(word in message for each in named for word in each.split("|")), message
    assert len(message) < 600


@pytest.mark.parametrize("name", [
    "layer", "rotary", "moments", "factor", "fit", "audit", "learned", "queried", "program",
    "rules", "coefficients", "certified",
])  # fmt: skip
def test_a_missing_or_unknown_field_is_named(name, records, tmp_path):
    record = records[name]
    path = tmp_path / "forged"
    for field in record.metadata:
        # Files of older releases lack some.
        optional = field in ("ridge_path", "statistics", *SIZES, *NEWER)
        if optional or (name, field) == ("learned", "bias"):
            continue
        rest = {key: each for key, each in record.metadata.items() if key != field}
        write_forged(path, record.kind, record.arrays, rest)
        # Without what is said of the heads their arrays are too many.
        with pytest.raises(FileFormatError, match="attn" if field == "heads" else field):
            pa.load(path)
    write_forged(path, record.kind, record.arrays, record.metadata | {"remark": 1})
    with pytest.raises(FileFormatError, match="remark"):
        pa.load(path)
    write_forged(path, record.kind, record.arrays | {"more": np.ones(2)}, record.metadata)
    with pytest.raises(FileFormatError, match="more"):
        pa.load(path)


@pytest.mark.parametrize(
    "name",
    [
        "layer",
        "layer of a form",
        "softmax",
        "rotary",
        "moments",
        "factor",
        "fit",
        "fit without heads",
        "learned",
        "queried",
        "rules",
        "coefficients",
    ],
)
def test_wrong_arrays_are_named(name, records, tmp_path):
    record = records[name]
    path = tmp_path / "forged"
    for field, array in record.arrays.items():
        flat = array.reshape(-1)
        nan = array.astype(float)
        nan.reshape(-1)[0] = np.nan
        for other in (nan, flat[:-1].copy(), array.astype(np.float32), array[None].copy()):
            write_forged(path, record.kind, record.arrays | {field: other}, record.metadata)
            with pytest.raises(FileFormatError, match=field.removeprefix("statistics.")):
                pa.load(path)


def test_traces_and_coefficients_that_cannot_be_are_refused(records, tmp_path):
    path, record = tmp_path / "forged", records["coefficients"]
    n_rows = len(record.arrays["fitted"])
    for field, at, value in (
        ("trace_table", (0, 0), 1), ("trace_table", (0, 0), -1), ("trace_table", (0, 1), 2**62),
        ("trace_table", (0, 1), 0), ("trace_table", (0, 3), 2), ("fitted", 0, -1),
        ("fitted", -1, n_rows), ("fitted", 1, 0), ("pairs", (0, 0), 99), ("pairs", (0, 0), 1),
        ("trace_tokens_0", (0, 0), 10**9), ("trace_labels_0", (0, 0), 1e200),
    ):  # fmt: skip
        changed = record.arrays[field].copy()
        changed[at] = value
        write_forged(path, record.kind, record.arrays | {field: changed}, record.metadata)
        with pytest.raises(FileFormatError, match=r"trace|fitted|pairs"):
            pa.load(path)
    with pytest.raises(FileFormatError, match="does not hold a complete"):
        pa.load(path)


def test_labelled_traces_without_rows_are_refused(records, tmp_path):
    path, record = tmp_path / "forged", records["coefficients"]
    table = record.arrays["trace_table"].copy()
    table[:, 1], table[:, 2] = table[:, 1] + table[:, 2], 0
    arrays = {name: each for name, each in record.arrays.items() if name != "trace_labels_0"}
    write_forged(path, record.kind, arrays | {"trace_table": table}, record.metadata)
    with pytest.raises(FileFormatError, match=r"traces\[0\].completion must have shape"):
        pa.load(path)


DESCRIPTIONS = {
    "nothing": "", "no JSON": "{", "a list": "[]", "no kind": '{"metadata": {}}',
    "a kind that is none": '{"kind": [], "metadata": {}}', "deep": "[" * 100_000,
    "metadata that are none": '{"kind": "moments", "metadata": 3}', "NaN": '{"kind": NaN}',
    "digits": '{"kind": "moments", "metadata": {"n_rows": ' + "9" * 5000 + "}}",
    "nested": '{"kind": "moments", "metadata": {"n_rows": ' + "[" * 900 + "]" * 900 + "}}",
    "twice": '{"kind": "moments", "kind": "fit_result", "metadata": {}}',
}  # fmt: skip


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_descriptions_that_are_none(name, tmp_path):
    path = tmp_path / "forged.safetensors"
    write_forged(path, "", {}, {}, DESCRIPTIONS[name] or " ")
    with pytest.raises(FileFormatError, match=r"forged\.safetensors"):
        pa.load(path)


def test_types_that_numpy_has_not_are_refused(tmp_path):
    path = tmp_path / "brain"
    header = {"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}
    header["__metadata__"] = {"format": "polyattn", "version": "1"}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0\0")
    with pytest.raises(FileFormatError, match="BF16"):
        pa.load(path)


# Programs ----------------------------------------------------------------------------------------


def test_a_program_too_large_to_run_is_neither_loaded_nor_saved(tmp_path):
    program = P.compile(P.universal_dfa(2, 3, 4, style="one_hot"))
    record = program.to_record()
    record.metadata["schema"]["sizes"]["max_length"] = 10**6
    path = tmp_path / "large.safetensors"
    write_forged(path, "program", {}, record.metadata)
    with pytest.raises(FileFormatError, match=r"large.*max_length"):
        pa.load(path)
    large = P.compile(P.universal_dfa(30, 30, 20_000, style="one_hot"))
    with pytest.raises(InvalidInput, match="smaller sizes"):
        pa.save(large, path)


def test_many_large_terms_are_refused_at_once(tmp_path):
    program = P.compile(P.associative_memory(4, 4))
    metadata = program.to_record().metadata
    metadata["schema"]["sizes"] = {"n_keys": 80_000, "n_values": 80_000}
    metadata["terms"] *= 2_000
    write_forged(tmp_path / "program", "program", {}, metadata)
    start = time.perf_counter()
    with pytest.raises(FileFormatError, match="entries"):
        pa.load(tmp_path / "program")
    assert time.perf_counter() - start < 10


# Certificates ------------------------------------------------------------------------------------


def test_a_certificate_with_numbers_beyond_all_bounds_is_refused(tmp_path):
    document = to_document(pa.certify(X))
    for field in ("lambda_min", "lambda_max", "rounding"):
        text = json.dumps(document | {field: "@"}).replace('"@"', "1e999")
        path = tmp_path / "certificate.json"
        path.write_text(text)
        with pytest.raises(FileFormatError, match=r"certificate\.json.*float64"):
            pa.load(path)
        with pytest.raises(FileFormatError, match=field):
            from_document(document | {field: float("inf")})


def test_a_certificate_of_impossible_sizes_is_refused():
    document = to_document(pa.certify(X))
    for field, value in (("n_features", 7), ("n_dims", 10**30), ("n_rows", 0), ("note", 3)):
        forged = document | {field: value}
        with pytest.raises(FileFormatError, match=field):
            from_document(forged | {"seal": seal(forged)})


# Arrays ------------------------------------------------------------------------------------------


def fit(path):
    """``polyattn fit`` on a file: its one line of refusal."""
    done = CliRunner().invoke(cli, ["fit", str(path)])
    assert isinstance(done.exception, SystemExit), done.exc_info
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert path.name in done.stderr
    return done.stderr


def header_of(shape, kind="<f8"):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        header_of((10**12,)), header_of((10**30, 3)), header_of((-1, 2)), header_of((2, 2)) + b"12",
        header_of((1,)) + bytes(9), header_of((1,), "|O") + bytes(8), header_of((9**9,), "<U0"),
        header_of((1,), "<f7") + bytes(8), b"\x93NUM", b"\x93NUMPY\x09\x00",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff", b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16,
        b"\x93NUMPY\x01\x00\x04\x00\xff\xfe{}", b"\x93NUMPY\x01\x00\x0f\x00{'descr': '<f8",
        b"\x93NUMPY\x01\x00\x88\x13" + b"-" * 5000,
        header_of((1,)).replace(b"Y\x01\x00", b"Y\x01\x01") + bytes(8),
    ],
)  # fmt: skip
def test_headers_that_lie_are_one_line(content, tmp_path):
    path = tmp_path / "lie.npy"
    path.write_bytes(content)
    assert "no readable .npy" in fit(path)


def archive(path, members, packing=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", packing) as file:
        for name, content in members.items():
            file.writestr(name, content)


def npy(array):
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()


@pytest.mark.parametrize("packing", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_archives_damaged_anywhere_are_one_line(packing, tmp_path):
    path = tmp_path / "damaged.npz"
    archive(path, {"X.npy": npy(X), "Y.npy": npy(Y)}, packing)
    good = path.read_bytes()
    for at in np.random.default_rng(0).integers(len(good), size=60):
        data = bytearray(good)
        data[at] ^= 0x55
        path.write_bytes(data)
        done = CliRunner().invoke(cli, ["fit", str(path), "--explain"])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
        assert "Traceback" not in done.stderr


def test_a_bomb_of_zeros_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", 8, compresslevel=1) as file, file.open("X.npy", "w") as X:
        X.write(header_of((280 << 17,)))
        for _ in range(280):
            X.write(bytes(1 << 20))
    assert path.stat().st_size < 3_000_000
    tracemalloc.start()
    message = fit(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "numpy.savez" in message
    assert peak < 50_000_000


def test_members_are_held_against_their_headers(tmp_path):
    path = tmp_path / "short.npz"
    archive(path, {"X.npy": header_of((10**11,)) + bytes(80)})
    assert "there are 80" in fit(path)
    archive(path, {"X.npy": npy(X), "X": npy(X)})
    assert "two arrays of one name" in fit(path)


def test_arrays_in_either_order_and_empty_ones_are_read(tmp_path):
    from polyattn.cli.io import read_data

    for array in (X, np.asfortranarray(X), X[:, :, :0], X.astype(">f4"), X > 0, np.float64(3.0)):
        np.save(tmp_path / "a.npy", array)
        np.savez_compressed(tmp_path / "a.npz", X=array)
        for suffix in ("npy", "npz"):
            read = read_data(tmp_path / f"a.{suffix}").arrays["X"]
            np.testing.assert_array_equal(read, array)
            assert read.dtype == array.dtype


# Machines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [3, 6, 10, 30])
@pytest.mark.parametrize("place", ["rules: {{A: {{0: [A, 0, {}]}}}}", "transitions: {}", "{}"])
def test_a_bomb_of_aliases_is_refused_at_once(place, depth, tmp_path):
    path = tmp_path / "bomb.yaml"
    lists = ["&a0 [lol]"]
    lists += [f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, depth)]
    path.write_text(place.format(f"[{', '.join(lists)}]"))
    start = time.perf_counter()
    with pytest.raises(FileFormatError, match="the alias 'a0'") as refusal:
        load_machine(path)
    assert time.perf_counter() - start < 1
    assert len(str(refusal.value)) < 500


def test_a_long_list_is_read_or_refused_within_a_second_or_two(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text("[" + ", ".join(["[0, 1]"] * 25_000) + "]")
    assert path.stat().st_size == 200_000
    start = time.perf_counter()
    assert load_machine(path).machine.n_states == 25_000
    assert time.perf_counter() - start < 8


@pytest.mark.parametrize(
    "content",
    [
        {"rules": {"A": {"0": "L" * 900_000}}},
        {"rules": {f"s{i}": {"0": "0RH"} for i in range(20_000)},
         "halt": [f"h{i}" for i in range(25_000)]},
        {"rules": "1RB1LB_" * 100_000},
    ],
    ids=["a long rule", "many halting states", "a long table"],
)  # fmt: skip
def test_large_machines_that_are_wrong_are_refused_soon(content, tmp_path):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(content))
    start = time.perf_counter()
    with pytest.raises(FileFormatError):
        load_machine(path)
    assert time.perf_counter() - start < 8


def test_what_a_message_quotes_is_cut(tmp_path):
    path = tmp_path / "machine.json"
    for content in ({"transitions": "a" * 500_000}, {"k" * 500_000: 1}, {"kind": ["x"] * 90_000}):
        path.write_text(json.dumps(content))
        with pytest.raises(FileFormatError) as refusal:
            load_machine(path)
        assert len(str(refusal.value)) < 5000
    with pytest.raises(PolyattnError) as refusal:
        pa.fit(X, Y, mode="m" * 10**6)
    assert len(str(refusal.value)) < 500


def test_infinite_error_bars_are_null_in_json(records, tmp_path):
    record = records["learned"]
    arrays = record.arrays | {"attn_std": np.full_like(record.arrays["attn_std"], np.inf)}
    write_forged(tmp_path / "wide.safetensors", record.kind, arrays, record.metadata)
    done = CliRunner().invoke(cli, ["show", str(tmp_path / "wide.safetensors"), "--json"])
    assert json.loads(done.stdout)["attn_std"][0][0][0] is None


# The screen --------------------------------------------------------------------------------------

ESCAPE = "\x1b]0;owned\x07\x1b[31m"


def everything(*arguments):
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done.stdout + done.stderr


def test_what_a_terminal_would_obey_is_shown_escaped(tmp_path, records):
    red = str(tmp_path / f"red{ESCAPE}")
    machine = tmp_path / "machine.json"
    machine.write_text(json.dumps({"name": ESCAPE, "transitions": [[0, 1], [1, 0]]}))
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({ESCAPE: 1, "transitions": [[0]]}))
    record = records["learned"]
    metadata = json.loads(json.dumps(record.metadata))
    metadata["phases"][0] |= {"name": f"{ESCAPE}[/]", "sentence": "[red]{0}[/blue]"}
    metadata["outcome"]["sentence"] = f"All is well. {ESCAPE}"
    write_forged(tmp_path / "learned.safetensors", record.kind, record.arrays, metadata)
    np.savez(tmp_path / "names.npz", **{f"X{ESCAPE}": X})
    said = [
        everything("program", "show", str(machine)),
        everything("program", "show", str(wrong)),
        everything("program", "run", str(machine), "01", "--check"),
        everything("show", str(tmp_path / "learned.safetensors")),
        everything("fit", str(tmp_path / "names.npz")),
        everything("show", red), everything("fit", red + ".npz"), everything(red),
        everything(f"--{ESCAPE}"), everything("fit", "x", "--ridge", ESCAPE),
        everything("fit", "x", "-o", f"{red}/x"), everything("reproduce", ESCAPE),
        everything("program", "run", ESCAPE, "0"),
    ]  # fmt: skip
    for text in said:
        assert "\x1b" not in text
        assert "\x07" not in text
    assert sum("\\x1b" in text for text in said) == len(said)


def test_errors_of_the_library_are_escaped_too(tmp_path):
    with pytest.raises(FileFormatError) as refusal:
        load_machine(tmp_path / f"{ESCAPE}.txt")
    assert "\x1b" not in str(refusal.value)
    assert "\x1b" not in str(InvalidInput(f"a {ESCAPE} name"))
    assert str(InvalidInput("two\nlines – ½")) == "two\nlines – ½"
