"""Tables: however the rows are held, divided and ordered, they are the sequences pandas finds."""

import itertools
import subprocess
import sys
from decimal import Decimal

import dask
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as arrow
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput, PolyattnError
from test_sources import LAYER, assert_holds

PLACES = {"sequence": "who", "order": "when", "tokens": ["a", "b"]}
NAMES = {**PLACES, "targets": ["y"], "weight": "w"}


@st.composite
def frames(draw):
    """Numbers and weights of few digits, so that sums are exact; rows of a sequence together."""
    lengths = draw(st.lists(st.integers(1, 25), min_size=1, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_rows, numbers = sum(lengths), rng.permutation(1000)[: len(lengths)]
    names = [f"s{i:03}" for i in numbers] if draw(st.booleans()) else numbers.tolist()
    columns = {"who": np.repeat(np.array(names), lengths), "unused": "text"}
    columns |= {"when": rng.permutation(n_rows)}
    columns |= {name: rng.integers(-5, 5, n_rows) / 4 for name in "ay"}
    columns |= {"b": rng.integers(-5, 5, n_rows)}
    return pd.DataFrame(columns | {"w": np.repeat(rng.choice([1, 4, 9], len(lengths)), lengths)})


def groups(frame, mode, sort=False, order="when"):
    """What pandas finds in a frame, in the order of first rows or of names: (X, Y, weights)."""
    found = [
        rows.sort_values(order) if order else rows for _, rows in frame.groupby("who", sort=sort)
    ]
    Y = [rows[["y"]].to_numpy() for rows in found]
    return (
        [rows[["a", "b"]].to_numpy(dtype=float) for rows in found],
        [y[-1] for y in Y] if mode == "last" else Y,
        np.array([float(rows["w"].iloc[0]) for rows in found]),
    )


def write_parquet(path, table, n_rows=1000):
    plain = {"compression": "NONE", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, path, row_group_size=n_rows, **plain)
    return path


def write_arrow(path, table, n_rows=1000):
    with arrow.OSFile(str(path), "wb") as file, arrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=n_rows)
    return path


def write(path, frame, n_rows=1000):
    """A frame in a file of the kind that its name says."""
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
        return path
    return WRITERS[path.suffix](path, arrow.Table.from_pandas(frame, preserve_index=False), n_rows)


WRITERS = {".parquet": write_parquet, ".arrow": write_arrow}


def partitions(frame, borders):
    """A dask frame whose partitions end at these rows; some may be empty."""
    pieces = [dask.delayed(frame[a:b]) for a, b in itertools.pairwise([0, *borders, len(frame)])]
    return dd.from_delayed(pieces, meta=frame[:0], verify_meta=False)


@settings(max_examples=10)
@given(
    frame=frames(), cuts=st.lists(st.integers(0, 200), max_size=5), indexed=st.booleans(),
    mode=st.sampled_from(["last", "causal"]),
)  # fmt: skip
def test_any_partitions_of_a_dask_frame_hold_what_pandas_finds(frame, cuts, indexed, mode):
    borders = sorted(cut % (len(frame) + 1) for cut in cuts)
    lazy = partitions(frame.set_index("who") if indexed else frame, borders)
    assert_holds(pa.scan(lazy, **NAMES), *groups(frame, mode), mode)


@st.composite
def written(draw, frame, folder):
    """Files that hold the rows of a frame, divided anywhere: (paths, chunk_bytes)."""
    suffix = draw(st.sampled_from([*WRITERS, ".feather", ".csv", ".tsv"]))
    cuts = draw(st.lists(st.integers(0, 200), max_size=3))
    borders = sorted({0, len(frame), *(cut % (len(frame) + 1) for cut in cuts)})
    n_rows, ends = draw(st.integers(1, 30)), draw(st.sampled_from(["\n", "\r\n"]))
    last_break, blank = draw(st.booleans()), draw(st.sampled_from(["", "\n", "\r\n\n"]))
    mark, paths = draw(st.sampled_from(["", "\ufeff"])), []
    for i, (first, stop) in enumerate(itertools.pairwise(borders)):
        part, path = frame[first:stop], folder / f"{i}{suffix}"
        paths.append(path)
        if suffix in (".csv", ".tsv"):
            text = part.to_csv(
                index=False, lineterminator=ends, sep="," if suffix == ".csv" else "\t",
                quoting=draw(st.sampled_from([0, 1, 2])),
            )  # fmt: skip
            text = mark + (text + blank if last_break else text.removesuffix(ends))
            path.write_bytes(text.encode())
        else:
            rows = arrow.Table.from_pandas(part, preserve_index=False)
            WRITERS[".parquet" if suffix == ".parquet" else ".arrow"](path, rows, n_rows)
    return paths, draw(st.integers(20, 3000))


@settings(max_examples=40)
@given(
    data=st.data(), frame=frames(), mode=st.sampled_from(["last", "causal"]),
    order=st.sampled_from(["when", None]),
)  # fmt: skip
def test_any_division_into_files_and_chunks_holds_what_pandas_finds(
    data, frame, mode, order, tmp_path_factory
):
    paths, chunk_bytes = data.draw(written(frame, tmp_path_factory.mktemp("tables")))
    source = pa.scan(paths, **NAMES | {"order": order}, chunk_bytes=chunk_bytes)
    assert (source.n_dims, source.n_outputs, source.n_context_dims) == (2, 1, None)
    assert_holds(source, *groups(frame, mode, order=order), mode)


PAIRS = [[[1, 4], [2, 5]], [[3, 6]]]
LISTS = (
    ({"a": [[1, 2], [3]], "b": [[4, 5], [6]]}, ["a", "b"]),
    ({"t": PAIRS}, "t"),
    ({"t": arrow.array(PAIRS, arrow.large_list(arrow.list_(arrow.int64(), 2)))}, "t"),
)


def test_lists_are_one_sequence_per_row(tmp_path):
    X, w = [np.array([[1.0, 4], [2, 5]]), np.array([[3.0, 6]])], [1, 4]
    rest = {"y": [7.0, 8], "z": [[1.0, 2], [3]], "w": [1, 4], "who": ["p", "q"]}
    for (columns, tokens), suffix, chunk_bytes in itertools.product(LISTS, WRITERS, (1, 1000)):
        path = WRITERS[suffix](tmp_path / f"x{suffix}", arrow.table({**columns, **rest}), 1)
        named = {"sequence": "who", "tokens": tokens, "weight": "w", "chunk_bytes": chunk_bytes}
        assert_holds(pa.scan(path, **named, targets="y"), X, [[7.0], [8.0]], w, "last")
        per_token = pa.scan(path, **named, targets=["z"])
        assert_holds(per_token, X, [[[1.0], [2.0]], [[3.0]]], w, "causal")
        assert_holds(per_token, X, [[2.0], [3.0]], w, "last")


KINDS = {
    "pandas": lambda frame: frame,
    "pandas with nullable types": lambda frame: frame.convert_dtypes(),
    "pandas with types of Arrow": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.from_pandas,
    "polars in chunks": lambda frame: pl.concat(
        [pl.from_pandas(frame[:2]), pl.from_pandas(frame[2:])], rechunk=False
    ),
    "Arrow table": lambda frame: arrow.Table.from_pandas(frame, preserve_index=False),
    "Arrow batch": lambda frame: arrow.RecordBatch.from_pandas(frame, preserve_index=False),
    "Arrow reader": lambda frame: arrow.Table.from_pandas(frame).to_reader(3),
    "DuckDB": lambda frame: duckdb.from_arrow(arrow.Table.from_pandas(frame)),
}


@given(frames(), st.integers(0, 2**32))
def test_every_kind_of_frame_in_any_order_of_rows_is_what_pandas_groups(frame, seed):
    shuffled = frame.sample(frac=1, random_state=np.random.default_rng(seed))
    X, Y, w = groups(frame, "causal", sort=True)
    for make in KINDS.values():
        found = pa.from_long(make(shuffled), **NAMES, target_per="token")
        assert found.ids.tolist() == sorted(set(frame["who"]))
        for one, other in zip([*found.X, *found.Y], [*X, *Y], strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(found.sample_weight, w)


# Two sequences, their rows mixed.
SMALL = pd.DataFrame(
    {
        "who": ["v", "u", "v", "u", "v"], "when": [3, 2, 1, 1, 2],
        "a": [30.0, 2.0, 10.0, 1.0, 20.0], "b": [-3, -2, -1, -1, -2],
        "y": [0.3, 0.2, 0.1, 0.1, 0.2], "label": ["run", "walk", "run", "walk", "run"],
        "w": [2, 1, 2, 1, 2],
    }
)  # fmt: skip
U, V = [[1, -1], [2, -2]], [[10, -1], [20, -2], [30, -3]]


def test_targets_are_of_tokens_or_of_sequences():
    for targets, per, wanted in (
        ("label", "auto", ["walk", "run"]), ("y", "auto", [[0.1, 0.2], [0.1, 0.2, 0.3]]),
        (["y", "w"], "auto", [[[0.1, 1], [0.2, 1]], [[0.1, 2], [0.2, 2], [0.3, 2]]]),
        ("y", "last", [0.2, 0.3]), (["w"], "auto", [[1], [2]]),
        ("label", "token", [["walk"] * 2, ["run"] * 3]),
    ):  # fmt: skip
        data = pa.from_long(SMALL, **PLACES, targets=targets, target_per=per)
        assert (data[0], data[-1]) == (data.X, data.Y) or data[-1] is data.Y
        kept = data.Y if data.target_per == "sequence" else list(data.Y)
        assert [np.asarray(each).tolist() for each in kept] == wanted
    bare = pa.from_long(SMALL, sequence="who", tokens="a")
    assert bare.Y is None
    # Without an order rows stay as they stand.
    assert bare.X[1].tolist() == [[30], [10], [20]]
    with pytest.raises(IndexError):
        bare[2]


def test_targets_that_are_not_used_may_be_missing(tmp_path):
    frame = SMALL.sort_values("who", kind="stable").assign(y=[0.2, None, 0.3, None, np.nan])
    assert pa.from_long(frame, **PLACES, targets="y", target_per="last").Y.tolist() == [0.2, 0.3]
    source = pa.scan(write(tmp_path / "t.parquet", frame), **PLACES, targets="y")
    assert pa.Moments(2, 1).update(source).target_gram == pytest.approx(0.13)
    assert len(LAYER(source)) == 2
    with pytest.raises(InvalidInput, match="'y'"):
        pa.Moments(2, 1, "causal").update(source)


def test_a_slip_in_one_row_does_not_make_targets_of_tokens():
    rows = pd.DataFrame({"who": np.repeat(np.arange(5), 3), "when": np.tile(np.arange(3), 5)})
    # Where they change in most of those that have several rows, they are those of tokens.
    for changing, short in ((1, 5), (2, 5), (2, 4), (3, 5), (2, 2)):
        frame = rows[(rows["who"] < short) | (rows["when"] == 0)].assign(a=1.0, b=2.0)
        frame["y"] = np.where(frame["who"] < changing, frame["when"], 0)
        if 2 * changing <= short:
            with pytest.raises(InvalidInput, match=f"'y'.*{changing} of {short}"):
                pa.from_long(frame, **PLACES, targets="y")
            with pytest.raises(InvalidInput, match="'y'"):
                pa.from_long(frame, **PLACES, targets="y", target_per="sequence")
        else:
            assert pa.from_long(frame, **PLACES, targets="y").target_per == "token"


#: Types that numbers below a thousand can be cast to, which keep their order.
ORDER_TYPES = (
    arrow.uint64(), arrow.float32(), arrow.date32(), arrow.date64(), arrow.time32("s"),
    arrow.time64("ns"), arrow.timestamp("us"), arrow.timestamp("s", "UTC"), arrow.duration("ms"),
)  # fmt: skip
NAME_TYPES = {
    "texts": lambda n: arrow.array([f"{i:03}" for i in n]),
    "large texts": lambda n: arrow.array([f"{i:03}" for i in n], arrow.large_string()),
    "categories": lambda n: arrow.array([f"{i:03}" for i in n]).dictionary_encode(),
    "bytes": lambda n: arrow.array([b"%03d\0" % i for i in n]),
    "large integers": lambda n: arrow.array(n + 2**62),
    "unsigned integers": lambda n: arrow.array(n.astype("u8") + 2**63),
    "halves": lambda n: arrow.array(n / 2),
    "decimals": lambda n: arrow.array([Decimal(int(i)) / 100 for i in n]),
    "days": lambda n: arrow.array(n, arrow.int32()).cast(arrow.date32()),
    "times": lambda n: arrow.array(n).cast(arrow.timestamp("us", tz="UTC")),
}
ONE = pa.LinearAttention([[1.0]], [[1.0]], "causal")


@given(
    frame=frames(), kind=st.sampled_from(list(NAME_TYPES)), order=st.sampled_from(ORDER_TYPES)
)  # fmt: skip
def test_names_and_orders_of_every_type_are_told_apart(frame, kind, order, tmp_path_factory):
    table = arrow.Table.from_pandas(frame, preserve_index=False)
    names = NAME_TYPES[kind](np.unique(frame["who"], return_inverse=True)[1])
    narrow = order in (arrow.date32(), arrow.date64(), arrow.time32("s"))
    places = arrow.array(frame["when"], arrow.int32() if narrow else arrow.int64())
    places = places.cast(arrow.date32()) if order == arrow.date64() else places
    table = table.set_column(0, "who", names).drop_columns("when")
    table = table.append_column("when", places.cast(order))
    folder = tmp_path_factory.mktemp("typed")
    paths = [write(folder / f"x{suffix}", table, 3) for suffix, write in WRITERS.items()]
    sources = [pa.scan(path, **PLACES, chunk_bytes=100) for path in paths]
    sources += [pa.from_long(each, **PLACES).X for each in (table, pl.from_arrow(table))]
    for number, source in enumerate(sources):
        wanted = LAYER(groups(frame, "last", sort=number >= len(paths))[0])
        for one, other in zip(LAYER(source), wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    # A name that comes again later is that of two sequences.
    again = write_parquet(folder / "again.parquet", arrow.concat_tables([table, table]), 3)
    with pytest.raises(InvalidInput, match=r"pa\.from_long|two rows"):
        pa.Moments(2).update(pa.scan(again, **PLACES, chunk_bytes=100))


def test_names_by_integers_of_two_types_are_one_where_they_are_equal(tmp_path):
    small, large = arrow.array([-1, 3], arrow.int8()), arrow.array([3, 2**64 - 1], arrow.uint64())
    for i, who in enumerate((small, large)):
        write_parquet(tmp_path / f"{i}.parquet", arrow.table({"who": who, "a": [1.0, 2.0]}))
    source = pa.scan(str(tmp_path / "*.parquet"), sequence="who", tokens="a")
    assert [len(y) for y in ONE(source)] == [1, 2, 1]


def test_integers_of_frames_stay_integers_or_are_refused_beside_floats():
    large = SMALL.assign(b=2**53 + SMALL["b"].to_numpy() % 2)
    for make in (KINDS[kind] for kind in ("pandas", "polars", "Arrow table", "DuckDB")):
        alone = pa.from_long(make(large), sequence="who", order="when", tokens="b").X
        assert alone[0].tolist() == [[2**53 + 1], [2**53]]
        with pytest.raises(InvalidInput, match=f"'b'.*{2**53 + 1}"):
            pa.from_long(make(large), **PLACES)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv"])
def test_integers_of_files_are_never_rounded(suffix, tmp_path):
    """A certificate is of the integers themselves; beside floats large ones are refused."""

    def source(*columns, tokens=("a", "b"), **more):
        for i, (a, b) in enumerate(columns):
            write(tmp_path / f"{i}{suffix}", pd.DataFrame({"who": [i, i, i + 1], "a": a, "b": b}))
        return pa.scan(str(tmp_path / f"*{suffix}"), sequence="who", tokens=list(tokens), **more)

    large, small = [2**53 + 1, -3, 2**53], [1, 2, 3]
    X = [np.array([[2**53 + 1, 1], [-3, 2]]), np.array([[2**53, 3]])]
    digest = pa.certify(source((large, small))).digest
    assert digest == pa.certify(X).digest
    assert digest != pa.certify([x.astype(float) for x in X]).digest
    with pytest.raises(InvalidInput, match=f"'a'.*{2**53 + 1}"):
        pa.certify(source((large, [0.5, 1.5, 2.5])))
    # Integers of one file, or of one chunk, meet floats of the next: 1 sequence goes over both.
    for number, fits in ((2**53, True), (2**53 + 1, False)):
        mixed = source(([1, 2, number], small), ([0.5, 2.0, 3.0], small), tokens="a", chunk_bytes=5)
        if fits:
            np.testing.assert_array_equal(ONE(mixed)[1], ONE([[[2.0**53], [0.5], [2.0]]])[0])
        else:
            with pytest.raises(InvalidInput, match=str(number)):
                ONE(mixed)


def test_numbers_and_names_of_csv_files_are_what_stands_there(tmp_path):
    path = tmp_path / "x.csv"
    texts = ["07", "7", "7.0", "NA", " ", 'q,"']
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    path.write_text("who,t,a\n" + "".join(f"{q},t,{i}\n" for i, q in enumerate(quoted)))
    assert len(ONE(pa.scan(path, sequence="who", tokens="a"))) == 6
    for kept in (f"{2**53}", "1e300", f"{2**53 + 1}.0", "123456789012345678901e-3"):
        path.write_text(f"who,a\n1,{kept}\n1,0.5\n")
        found = pa.certify(pa.scan(path, sequence="who", tokens="a")).digest
        assert found == pa.certify([[[float(kept)], [0.5]]]).digest
    for text in ("who,o,a\n1,10,1\n1,9,2\n", "who,o,a\n1,2020-02-01,1\n1,2020-01-31,2\n"):
        path.write_text(text)
        found = ONE(pa.scan(path, sequence="who", tokens="a", order="o"))
        np.testing.assert_array_equal(found[0], ONE([[[2.0], [1.0]]])[0])


def test_objects_periods_and_categories_of_pandas_are_what_they_stand_for():
    objects = SMALL.assign(
        a=SMALL["a"].astype(object),
        b=pd.Series([True, False, None, True, True], dtype=object),
        when=pd.Categorical(SMALL["when"]),
    )
    data = pa.from_long(objects, **PLACES, missing="keep")
    np.testing.assert_array_equal(data.X[1], [[10, np.nan], [20, 1], [30, 1]])
    when = pd.period_range("2024-01", periods=5, freq="M")[SMALL["when"].to_numpy() - 1]
    assert pa.from_long(SMALL.assign(when=when), **PLACES).X[1].tolist() == V
    for make in KINDS.values():
        frame = SMALL.astype({"label": "category", "who": "category"})
        assert list(pa.from_long(make(frame), **PLACES, targets="label").Y) == ["walk", "run"]


@pytest.mark.parametrize("kind", KINDS)
def test_missing_numbers_of_tokens_are_refused_or_kept(kind):
    whole, make = SMALL.astype({"when": "Int64", "w": "Int64", "b": "Int64"}), KINDS[kind]
    for at, column in enumerate(("a", "b")):
        frame = whole.copy()
        frame.loc[4, column] = None
        with pytest.raises(InvalidInput, match=f"'v', token 1.*'{column}'"):
            pa.from_long(make(frame), **PLACES)
        data = pa.from_long(make(frame), **PLACES, missing="keep")
        expected = np.array(V, float)
        expected[1, at] = np.nan
        np.testing.assert_array_equal(data.X[1], expected)
    with pytest.raises(InvalidInput, match="sequence 1, token 1, coordinate"):
        pa.certify(data.X)
    if kind in ("pandas", "polars", "Arrow table"):  # a column without any value has no type
        data = pa.from_long(make(SMALL.assign(a=None)), **PLACES, missing="keep")
        assert np.isnan(data.X[0][:, 0]).all()


INDEXED = SMALL.set_index(["who", "when"])[["a", "b"]].sort_index()


def test_an_index_of_two_levels_needs_no_names():
    everything = SMALL.set_index(["who", "when"])
    for data in (
        pa.from_long(INDEXED.rename_axis([None, None])),
        pa.from_long(everything.drop(columns="y"), targets="label", weight="w"),
        pa.from_long(SMALL.set_index("who"), **PLACES),
    ):
        assert [x.tolist() for x in data.X] == [U, V]
        assert data.token_names == ("a", "b")
    # Whatever takes sequences takes such a frame.
    assert pa.certify(pa.scan(INDEXED)).digest == pa.certify([U, V]).digest
    model = pa.LinearAttentionRegressor(ridge=1.0, layout="channels_first")
    expected = clone(model).set_params(layout="tokens_first").fit([U, V], [1.0, 2.0])
    np.testing.assert_allclose(model.fit(INDEXED, [1.0, 2.0]).coef_, expected.coef_)


def test_targets_with_another_index_than_the_sequences_are_refused():
    index = pd.MultiIndex.from_product([list("abcdef"), range(3)])
    frame = pd.DataFrame(np.arange(36.0).reshape(18, 2) % 7, index=index)
    y = pd.Series([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], index=list("abcdef"))
    regressor = pa.LinearAttentionRegressor(ridge=1.0)
    expected = clone(regressor).fit(frame, y.to_numpy())
    for call in (
        lambda y: pa.fit(frame, y),
        lambda y: pa.fit(pa.scan(frame, y)),
        lambda y: pa.Moments(2, 1).update(frame, y),
        lambda y: pa.learning_curve(frame, y, train_sizes=[2]),
        lambda y: pa.learn_softmax(frame, y, 1, mode="last"),
        lambda y: regressor.partial_fit(frame, y),
        lambda y: expected.score(frame, y),
    ):
        for bad in (y.iloc[::-1], y.set_axis(list("uvwxyz"))):
            with pytest.raises(InvalidInput, match="the index of the targets"):
                call(bad)
    found = clone(regressor).fit(frame, y.reset_index(drop=True))
    np.testing.assert_array_equal(found.predict(frame), expected.predict(frame))


def test_labels_are_of_tokens_and_the_last_one_counts_for_the_sequence(tmp_path):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 1)) for n in rng.integers(2, 6, 40)]
    y = [np.where(x[:, 0] + 0.3 * rng.standard_normal(len(x)) > 0, "up", "down") for x in X]
    table = arrow.table({"x": [x[:, 0] for x in X], "y": y})
    source = pa.scan(write_parquet(tmp_path / "t.parquet", table, 9), tokens="x", targets="y")
    for mode, labels in (("last", np.array([each[-1] for each in y])), ("causal", y)):
        model = pa.LinearAttentionClassifier(mode, loss="squared", ridge=1.0)
        found, expected = clone(model).fit(source), clone(model).fit(X, labels)
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-8, atol=1e-10)


def test_a_file_read_by_other_columns_is_other_data(tmp_path):
    frame = pd.DataFrame({name: np.arange(30.0) % 7 for name in "abyz"})
    frame = frame.assign(who=np.arange(30) // 3, w=1.0 + np.arange(30) // 3)
    frame.loc[20:, "z"] += 1  # in the first chunk the two targets are the same
    path, kept = write(tmp_path / "t.parquet", frame, 9), tmp_path / "kept.safetensors"
    usual = {"sequence": "who", "tokens": ["a", "b"], "targets": "y", "chunk_bytes": 150}
    whole = pa.Moments(2, 1).update(pa.scan(path, **usual), checkpoint=kept)
    for other in ({}, {"targets": "z"}, {"tokens": ["b", "a"]}, {"weight": "w"}, {"order": "y"}):
        source = pa.scan(path, **usual | other)
        with pytest.raises(InvalidInput, match=r"counted|another way|two rows"):
            whole + pa.Moments(2, 1).update(source)
        if other:
            with pytest.raises(InvalidInput, match=r"other data|another way|two rows"):
                pa.Moments(2, 1).update(source, checkpoint=kept)


def long(frame=SMALL, **columns):
    return lambda: pa.from_long(frame, **{**PLACES, **columns})


REFUSED_FRAMES = (
    *(
        (lambda make=make: pa.fit(make(SMALL), [1.0, 2.0]), "pa.from_long")
        for make in KINDS.values()
    ),
    (lambda: pa.scan(SMALL, sequence="who", tokens=["a"]), "pa.from_long"),
    (long("t.parquet"), "scan"),
    (lambda: pa.fit(pl.from_pandas(SMALL).lazy(), [1, 2]), "LazyFrame"),
    (long(sequence="whom"), "'whom'.*'who'"),
    (long(tokens=["a", "a"]), "'a' twice"),
    (long(SMALL.rename(columns={"y": "a"})), "'a'"),
    (long(targets=["y", "label"]), "targets"),
    (long(SMALL.assign(label=[*"a", None, *"bab"]), targets="label", missing="keep"), "'label'"),
    (long(SMALL.assign(w=[1, 2, None, 2, 1]), weight="w", missing="keep"), "'w'"),
    (long(SMALL[:0]), "no rows"),
    (lambda: pa.from_long(pd.concat({"top": INDEXED})), "tokens"),
    (lambda: pa.fit(INDEXED.loc[["v", "u"]], [1.0, 2.0]), "order of their names"),
    (long(SMALL.assign(who=["v", "", "v", "", "v"])), "'who'"),
    (long(SMALL.assign(who=["a", 1, "a", 1, "a"])), "sequence"),
)


def test_frames_that_cannot_be_used_are_refused():
    for call, word in REFUSED_FRAMES:
        with pytest.raises(PolyattnError, match=word):
            call()


BAD_COLUMNS = {
    "a gap": ({"a": [1.0] * 7 + [None] * 6}, "12'?, (row|token) 1.*'a'"),
    "NaN": ({"b": [1.0] * 7 + [np.nan] * 6}, "12'?, (row|token) 1.*'b'"),
    "infinity": ({"a": [1.0] * 7 + [np.inf] * 6}, "12'?, (row|token) 1.*'a'"),
    "no target": ({"y": [None] + [1.0] * 12}, "10'?, (row|token) 0.*'y'"),
    "an infinite target": ({"y": [-np.inf] + [1.0] * 12}, "10'?, (row|token) 0.*'y'"),
    "no name": ({"who": [None, *range(12)]}, "'who'"),
    "no weight": ({"w": [None] + [1.0] * 12}, "'w'|weight"),
    "no order": ({"when": [None, *range(12)]}, "10'?, (row|token).*'when'"),
    "a place twice": ({"when": [5, 4, 3, 4, *range(9)]}, "10'?:.*'when'"),
    "weights that change": ({"w": [*range(13)]}, "10'?:.*'w'"),
    "a negative weight": ({"w": [-1.0] * 13}, "weight"),
    "text as an order": ({"when": [*"abcdefghijklm"]}, "order|'when'"),
    "decimals": ({"a": [Decimal("0.1")] * 13}, "'a'"),
}
THIRTEEN = {"who": np.repeat([10, 11, 12], (5, 1, 7)), "when": range(13), "b": [2] * 13}


def rows_with(**columns):
    return arrow.table(THIRTEEN | dict.fromkeys("ayw", [1.0] * 13) | columns)


def fit_in_memory(frame):
    data = pa.from_long(frame, **NAMES, target_per="token")
    pa.fit(*data, mode="causal", sample_weight=data.sample_weight)


def fit_source(data):
    pa.fit(pa.scan(data, **NAMES), mode="causal")


WAYS = {
    **{suffix: lambda table, folder, suffix=suffix: fit_source(
        WRITERS[suffix](folder / f"x{suffix}", table)) for suffix in WRITERS},
    "Arrow table": lambda table, _: fit_in_memory(table),
    "polars": lambda table, _: fit_in_memory(pl.from_arrow(table)),
    "pandas": lambda table, _: fit_in_memory(table.to_pandas()),
    "dask": lambda table, _: fit_source(partitions(table.to_pandas(), [7])),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_columns_that_cannot_be_used_are_refused_whatever_holds_them(way, tmp_path):
    WAYS[way](rows_with(), tmp_path)
    for columns, word in BAD_COLUMNS.values():
        with pytest.raises(PolyattnError, match=word):
            WAYS[way](rows_with(**columns), tmp_path)


def refused(paths, word):
    with pytest.raises(PolyattnError, match=word):
        fit_source(paths)


BAD_LISTS = (
    ({"a": [[1.0, 2.0]], "b": [[1.0]]}, {"tokens": ["a", "b"]}, "unequal"),
    ({"a": [[]]}, {"tokens": "a"}, "no tokens"),
    ({"a": [[1.0, None]]}, {"tokens": "a"}, "token 1.*'a'"),
    ({"t": [[[1.0], [1.0, 2.0]]]}, {"tokens": "t"}, "token 1.*2 coordinates"),
    ({"t": [[[[1.0]]]]}, {"tokens": "t"}, "deep"),
    ({"t": [[1.0]], "o": [1]}, {"tokens": "t", "order": "o"}, "order"),
    ({"t": [[1.0]], "y": [[1.0, 2.0]]}, {"tokens": "t", "targets": "y"}, "target"),
)


def test_lists_that_cannot_be_used_are_refused(tmp_path):
    for columns, names, word in BAD_LISTS:
        path = write_parquet(tmp_path / "x.parquet", arrow.table(columns))
        with pytest.raises(PolyattnError, match=word):
            (pa.fit if "targets" in names else pa.certify)(pa.scan(path, **names))


BAD_TEXTS = (
    ("who,A\n1,2\n", "'a'"),
    ("who,a\n1,2\n3\n", "x.csv.*got 1"),
    ("who,a,b\n1,2,3\n1,2", "got 2"),
    ("who,a\n1,2\n1,\n", "'1', row 1.*'a'"),
    ("who,a\n,2\n", "'who'"),
    ('who,a\n1,2\n"1,2\n', "byte 10"),
    ("who,a\r1,2\r", "carriage"),
)


def test_texts_that_are_no_table_are_refused(tmp_path):
    path, columns = tmp_path / "x.csv", {"sequence": "who", "tokens": ["a"]}
    # A line break within quotation marks is found wherever bytes are divided.
    lines = "".join(f"{i},{i},t\n" for i in range(20))
    broken = (f'who,a,t\n{lines}99,1,"x\n\ny,z\n"\n{lines}', "quotation mark")
    for text, word in (*BAD_TEXTS, broken):
        path.write_text(text, encoding="utf-8", newline="")
        for chunk_bytes in (None, 1, 5, 50):
            with pytest.raises(PolyattnError, match=word):
                pa.certify(pa.scan(path, **columns, chunk_bytes=chunk_bytes))
    path.write_text("who,a\n1,2\n", encoding="utf-16")
    with pytest.raises(PolyattnError, match="UTF-8"):
        pa.scan(path, **columns)


@pytest.mark.parametrize("suffix", WRITERS)
def test_broken_foreign_and_changed_files_are_named(suffix, tmp_path):
    write, path, named = WRITERS[suffix], tmp_path / f"x{suffix}", f"x{suffix}"
    values = np.random.default_rng(0).standard_normal(13)
    whole = write(tmp_path / f"whole{suffix}", rows_with(a=values)).read_bytes()
    damaged = [b"", b"who,a\n1,2\n", whole[:-7], whole[: len(whole) // 2]]
    if suffix == ".parquet":  # with checksums one bit is enough
        at = whole.index(values.tobytes())
        damaged.append(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for content in damaged:
        path.write_bytes(content)
        refused(path, named)
    refused(write(path, rows_with()[:0]), "no rows")
    refused(write(path, rows_with().append_column("a", arrow.array([1] * 13))), "'a'")
    for other in (rows_with(who=[*"abcdefghijklm"]), rows_with(a=[[1.0]] * 13, b=[[1.0]] * 13)):
        refused([write(path, other), tmp_path / f"whole{suffix}"], named)
    source = pa.scan(write(path, rows_with()), **NAMES)
    write(path, rows_with(a=np.zeros(13)))
    with pytest.raises(FileFormatError, match=named):
        pa.Moments(2, 1).update(source)


WITHOUT = """
import sys
sys.modules["pyarrow"] = sys.modules["dask"] = None
import pandas as pd, polyattn as pa
frame = pd.DataFrame({"who": [1, 1, 2], "t": [2, 1, 1], "a": [2.0, 1.0, 3.0]})
assert pa.from_long(frame, sequence="who", order="t", tokens=["a"]).X[0].tolist() == [[1], [2]]
for data, word in (("t.parquet", "arrow"), (type("Lazy", (), {"__dask_graph__": None})(), "dask")):
    try:
        pa.scan(data, **({"sequence": "who", "tokens": "a"} if word == "arrow" else {}))
    except pa.errors.MissingExtra as error:
        print(word in str(error))
"""


def test_pandas_needs_no_extra_and_others_name_theirs(tmp_path):
    write_parquet(tmp_path / "t.parquet", rows_with())
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["True"] * 2, "")
