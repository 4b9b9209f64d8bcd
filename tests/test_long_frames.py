"""Tables in memory as sequences: pandas, polars, Arrow and DuckDB, in any order of rows."""

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import RecordBatch, Table, types

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, PolyattnError
from polyattn.sequences import as_batch
from table_cases import frames

NAMES = {"sequence": "who", "order": "when", "tokens": ["a", "b"], "targets": ["y"], "weight": "w"}
# Two sequences, their rows mixed.
SMALL = pd.DataFrame(
    {
        "who": ["v", "u", "v", "u", "v"],
        "when": [3, 2, 1, 1, 2],
        "a": [30.0, 2.0, 10.0, 1.0, 20.0],
        "b": [-3, -2, -1, -1, -2],
        "y": [0.3, 0.2, 0.1, 0.1, 0.2],
        "label": ["run", "walk", "run", "walk", "run"],
        "w": [2, 1, 2, 1, 2],
    }
)
PLACES = {"sequence": "who", "order": "when", "tokens": ["a", "b"]}


def from_duckdb(frame):
    rows = Table.from_pandas(frame, preserve_index=False)
    return duckdb.from_arrow(rows)


KINDS = {
    "pandas": lambda frame: frame,
    "pandas with nullable types": lambda frame: frame.convert_dtypes(),
    "pandas with types of Arrow": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.from_pandas,
    "Arrow table": lambda frame: Table.from_pandas(frame, preserve_index=False),
    "Arrow batch": lambda frame: RecordBatch.from_pandas(frame, preserve_index=False),
    "Arrow reader": lambda frame: Table.from_pandas(frame).to_reader(3),
    "chunks": lambda frame: pl.concat(
        [pl.from_pandas(frame[:2]), pl.from_pandas(frame[2:])], rechunk=False
    ),
    "DuckDB": from_duckdb,
}


def same(one, other):
    np.testing.assert_array_equal(one.X.values, other.X.values)
    assert one.X.values.dtype == other.X.values.dtype
    np.testing.assert_array_equal(one.X.offsets, other.X.offsets)
    np.testing.assert_array_equal(one.ids, other.ids)
    assert one.target_per == other.target_per
    for mine, theirs in zip(one.Y, other.Y, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(one.sample_weight, other.sample_weight)


# What is found ------------------------------------------------------------------------------


def test_a_small_frame_by_hand():
    data = pa.from_long(SMALL, **PLACES, targets="label", weight="w")
    assert isinstance(data, pa.LongData)
    np.testing.assert_array_equal(data.ids, ["u", "v"])
    np.testing.assert_array_equal(data.X[0], [[1, -1], [2, -2]])
    np.testing.assert_array_equal(data.X[1], [[10, -1], [20, -2], [30, -3]])
    np.testing.assert_array_equal(data.Y, ["walk", "run"])
    np.testing.assert_array_equal(data.sample_weight, [1, 2])
    assert (data.token_names, data.target_names) == (("a", "b"), ("label",))
    X, Y = data
    assert X is data.X
    assert Y is data.Y
    assert repr(data) == (
        "LongData(2 sequences, 2..3 tokens of 2 coordinates; 1 target for each sequence, with "
        "weights)"
    )


def test_targets_of_tokens_and_of_sequences():
    tokens = pa.from_long(SMALL, **PLACES, targets="y")
    assert tokens.target_per == "token"
    np.testing.assert_array_equal(tokens.Y[1], [0.1, 0.2, 0.3])
    several = pa.from_long(SMALL, **PLACES, targets=["y", "w"])
    np.testing.assert_array_equal(several.Y[0], [[0.1, 1], [0.2, 1]])
    last = pa.from_long(SMALL, **PLACES, targets="y", target_per="last")
    assert last.target_per == "sequence"
    np.testing.assert_array_equal(last.Y, [0.2, 0.3])
    weights = pa.from_long(SMALL, **PLACES, targets=["w"])
    np.testing.assert_array_equal(weights.Y, [[1], [2]])
    by_token = pa.from_long(SMALL, **PLACES, targets="label", target_per="token")
    np.testing.assert_array_equal(by_token.Y[0], ["walk", "walk"])
    assert pa.from_long(SMALL, **PLACES).Y is None
    with pytest.raises(InvalidInput, match=r"sequence 'u': the target 'y' .*\[0.1\] and \[0.2\]"):
        pa.from_long(SMALL, **PLACES, targets="y", target_per="sequence")


@settings(max_examples=12, deadline=None)
@given(frames(), st.integers(0, 2**32))
def test_every_kind_of_frame_in_any_order_of_rows_is_the_same(frame, seed):
    expected = pa.from_long(frame, **NAMES)
    shuffled = frame.sample(frac=1, random_state=np.random.default_rng(seed))
    assert len(expected.X) == frame["who"].nunique()
    for make in KINDS.values():
        same(pa.from_long(make(shuffled), **NAMES), expected)


@settings(max_examples=15, deadline=None)
@given(frames())
def test_it_is_what_pandas_groups(frame):
    data = pa.from_long(frame, **NAMES, target_per="token")
    for i, (name, rows) in enumerate(frame.sort_values("when").groupby("who")):
        assert data.ids[i] == name
        np.testing.assert_array_equal(data.X[i], rows[["a", "b"]])
        np.testing.assert_array_equal(data.Y[i], rows[["y"]])
        assert data.sample_weight[i] == rows["w"].iloc[0]


@settings(max_examples=6, deadline=None)
@given(frames())
def test_it_is_what_scan_reads_of_the_same_table(tmp_path_factory, frame):
    path = tmp_path_factory.mktemp("tables") / "t.parquet"
    frame.sort_values("who", kind="stable").to_parquet(path)
    for mode, per in (("last", "last"), ("causal", "token")):
        data = pa.from_long(frame, **NAMES, target_per=per)
        source = pa.scan(path, **NAMES)
        mine = pa.fit(data.X, data.Y, mode=mode, sample_weight=data.sample_weight, ridge=0.1)
        theirs = pa.fit(source, mode=mode, ridge=0.1)
        np.testing.assert_allclose(mine.coef, theirs.coef, rtol=1e-6, atol=1e-12)
        (chunk,) = source.chunks
        content = chunk.read(mode)
        np.testing.assert_array_equal(content.batch.values, data.X.values)
        np.testing.assert_array_equal(content.batch.offsets, data.X.offsets)
        np.testing.assert_array_equal(content.weights, data.sample_weight)


def test_the_comparison_sees_a_changed_number():
    """The negative control of the tests above."""
    expected = pa.from_long(SMALL, **NAMES)
    changed = SMALL.assign(a=np.where(SMALL["when"] == 3, 31.0, SMALL["a"]))
    with pytest.raises(AssertionError):
        same(pa.from_long(changed, **NAMES), expected)


def test_without_an_order_rows_stay_as_they_stand():
    data = pa.from_long(SMALL, sequence="who", tokens="a")
    np.testing.assert_array_equal(data.X[1], [[30], [10], [20]])


def test_a_model_from_a_frame_of_texts_to_its_labels():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"who": np.repeat(np.arange(40), 5), "t": np.tile(np.arange(5), 40)})
    rows["x"] = rng.standard_normal(200) + np.where(rows["who"] % 2, 1.0, -1.0)
    rows["label"] = np.where(rows["who"] % 2, "odd", "even")
    shuffled = rows.sample(frac=1, random_state=0)
    X, y = pa.from_long(shuffled, sequence="who", order="t", tokens=["x"], targets="label")
    model = pa.LinearAttentionClassifier().fit(X, y)
    assert list(model.classes_) == ["even", "odd"]
    assert model.score(X, y) > 0.7


# Types of columns ---------------------------------------------------------------------------

TIMES = pd.date_range("2024-01-01", periods=5, freq="h")
ORDERS = {
    "floats": np.array([0.5, 1.5, 2.5, 3.5, 4.5]),
    "unsigned": np.arange(5, dtype=np.uint8),
    "times": TIMES,
    "times in a zone": TIMES.tz_localize("Europe/Berlin"),
    "times of the day": [dt.time(hour) for hour in range(5)],
    "durations": TIMES - TIMES[0],
    "nullable": pd.array(range(5), dtype="Int16"),
    "categories of numbers": pd.Categorical([10, 20, 30, 40, 50]),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("kind", ["pandas", "polars", "Arrow table", "DuckDB"])
def test_orders_of_all_types(name, kind):
    frame = pd.DataFrame({"who": ["s"] * 5, "when": ORDERS[name], "a": np.arange(5.0)})
    shuffled = frame.iloc[[3, 0, 4, 1, 2]]
    if (name, kind) in {("times of the day", "pandas"), ("durations", "DuckDB")}:
        with pytest.raises(InvalidType, match=r"'when' holds (times|month_day_nano_interval)"):
            pa.from_long(KINDS[kind](shuffled), sequence="who", order="when", tokens="a")
        return
    if name == "categories of numbers" and kind != "pandas":
        shuffled = shuffled.astype({"when": int})
    data = pa.from_long(KINDS[kind](shuffled), sequence="who", order="when", tokens="a")
    np.testing.assert_array_equal(data.X[0][:, 0], np.arange(5.0))


def test_objects_that_are_numbers():
    objects = SMALL.assign(
        a=pd.Series([30.0, 2, 10, 1, 20.0], dtype=object),
        b=pd.Series([-3, -2, -1, -1, -2], dtype=object),
        who=pd.Series([7, 5, 7, 5, 7], dtype=object),
    )
    np.testing.assert_array_equal(
        pa.from_long(objects, **PLACES).X.values, pa.from_long(SMALL, **PLACES).X.values
    )
    gap = objects.assign(b=pd.Series([-3, -2, -1, -1, None], dtype=object))
    data = pa.from_long(gap, **PLACES, missing="keep")
    np.testing.assert_array_equal(data.X[1][:, 1], [-1, np.nan, -3])
    flags = SMALL.assign(b=pd.Series([True, False, None, True, True], dtype=object))
    data = pa.from_long(flags, **PLACES, missing="keep")
    np.testing.assert_array_equal(data.X[1][:, 1], [np.nan, 1, 1])
    huge = SMALL.assign(who=pd.Series([2**70, 1, 2**70, 1, 2**70], dtype=object))
    assert list(pa.from_long(huge, **PLACES).ids) == [1, 2**70]


def test_periods_order_rows():
    when = pd.period_range("2024-01", periods=3, freq="M")[[2, 0, 1]]
    frame = pd.DataFrame({"who": 1, "when": when, "a": [3.0, 1.0, 2.0]})
    data = pa.from_long(frame, sequence="who", order="when", tokens="a")
    np.testing.assert_array_equal(data.X[0][:, 0], [1, 2, 3])


IDS = {
    "integers": [7, -1, 7, -1, 7],
    "floats": [0.5, -0.5, 0.5, -0.5, 0.5],
    "texts": ["10", "1", "10", "1", "10"],
    "flags": [True, False, True, False, True],
    "times": [TIMES[1], TIMES[0], TIMES[1], TIMES[0], TIMES[1]],
    "large integers": [2**63 - 1, 2**63 - 2, 2**63 - 1, 2**63 - 2, 2**63 - 1],
    "categories": pd.Categorical(["b", "a", "b", "a", "b"], categories=["b", "a", "c"]),
    "bytes": [b"b", b"a", b"b", b"a", b"b"],
    "decimals": [Decimal("2.5"), Decimal("1.5"), Decimal("2.5"), Decimal("1.5"), Decimal("2.5")],
}


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("kind", ["pandas", "polars", "Arrow table", "DuckDB"])
def test_names_of_sequences_of_all_types_are_sorted(name, kind):
    frame = SMALL.assign(who=IDS[name])
    data = pa.from_long(KINDS[kind](frame), **PLACES)
    np.testing.assert_array_equal(data.X[0], [[1, -1], [2, -2]])
    np.testing.assert_array_equal(data.X[1], [[10, -1], [20, -2], [30, -3]])
    assert data.ids[0] < data.ids[1]


@pytest.mark.parametrize("kind", ["pandas", "polars", "Arrow table", "DuckDB"])
def test_types_of_numbers_stay_or_meet_exactly(kind):
    for a, b, dtype in (
        (np.int8, np.int8, np.int8),
        (np.float32, np.float32, np.float32),
        (np.float32, np.int8, np.float32),
        (np.int32, np.float32, np.float64),
        (np.int64, np.int64, np.int64),
        (np.bool_, np.bool_, np.bool_),
    ):
        frame = SMALL.astype({"a": a, "b": b})
        values = pa.from_long(KINDS[kind](frame), **PLACES).X.values
        assert values.dtype == dtype
        np.testing.assert_array_equal(values[0], [1, -1 if b is not np.bool_ else True])
    large = SMALL.assign(b=2**53 + 1)
    with pytest.raises(InvalidInput, match=f"the column 'b', beside floats.*{2**53 + 1}"):
        pa.from_long(KINDS[kind](large), **PLACES)
    kept = pa.from_long(KINDS[kind](large), sequence="who", order="when", tokens="b")
    assert kept.X.values[0, 0] == 2**53 + 1


@pytest.mark.parametrize("kind", ["pandas", "polars", "Arrow table", "DuckDB"])
@pytest.mark.parametrize("column", ["b", "label"])
def test_categories_are_what_they_stand_for(kind, column):
    frame = SMALL.astype({column: "category"})
    made = KINDS[kind](frame)
    if kind == "Arrow table":
        assert types.is_dictionary(made.schema.field(column).type)
    tokens = ["a", "b"] if column == "label" or kind == "pandas" else ["a"]
    data = pa.from_long(made, sequence="who", order="when", tokens=tokens, targets="label")
    np.testing.assert_array_equal(data.Y, ["walk", "run"])
    np.testing.assert_array_equal(data.X[0][:, 0], [1, 2])


# Missing values -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["a", "b"])
def test_missing_numbers_of_tokens_are_refused_or_kept(kind, column):
    frame = SMALL.astype({"b": "Int64"})
    frame.loc[4, column] = None
    with pytest.raises(InvalidInput) as refused:
        pa.from_long(KINDS[kind](frame), **PLACES)
    for words in ("sequence 'v', token 1", f"{column!r} has no value", "missing='keep'", "Imputer"):
        assert words in str(refused.value)
    data = pa.from_long(KINDS[kind](frame), **PLACES, missing="keep")
    assert data.X.has_missing
    assert "some missing" in repr(data)
    expected = np.array([[10, -1], [20, -2], [30, -3]], float)
    expected[1, ["a", "b"].index(column)] = np.nan
    np.testing.assert_array_equal(data.X[1], expected)


@pytest.mark.parametrize("kind", ["pandas", "polars", "Arrow table"])
def test_a_column_without_any_value(kind):
    frame = SMALL.assign(a=None)
    data = pa.from_long(KINDS[kind](frame), **PLACES, missing="keep")
    assert np.isnan(data.X.values[:, 0]).all()
    with pytest.raises(InvalidInput, match="'a' has no value there, and lacks 5 values"):
        pa.from_long(KINDS[kind](frame), **PLACES)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("who", "'who' must name the sequence in every row; it has no value in 1 of 5.*row 1"),
        ("when", "sequence 'u', token .*'when' has no value"),
        ("label", "sequence 'u', token 1: the column 'label' has no value"),
        ("w", "sequence 'u', token 1: the column 'w' has no value"),
    ],
)
def test_other_missing_values_are_always_refused(kind, column, words):
    frame = SMALL.astype({"when": "Int64", "w": "Int64"})
    frame.loc[1, column] = None
    with pytest.raises(InvalidInput, match=words):
        pa.from_long(KINDS[kind](frame), **PLACES, targets="label", weight="w", missing="keep")


def test_targets_that_are_not_used_may_be_missing():
    frame = SMALL.assign(y=[0.3, 0.2, None, None, None])
    np.testing.assert_array_equal(
        pa.from_long(frame, **PLACES, targets="y", target_per="last").Y, [0.2, 0.3]
    )


# An index of two levels ---------------------------------------------------------------------

INDEXED = SMALL.set_index(["who", "when"])[["a", "b"]].sort_index()


def test_an_index_of_two_levels_needs_no_names():
    expected = pa.from_long(SMALL, **PLACES).X
    for frame in (INDEXED, INDEXED.rename_axis([None, None]), INDEXED.iloc[::-1]):
        np.testing.assert_array_equal(pa.from_long(frame).X.values, expected.values)
    everything = SMALL.set_index(["who", "when"])
    data = pa.from_long(everything, tokens=["a", "b"], targets="label", weight="w")
    np.testing.assert_array_equal(data.Y, ["walk", "run"])
    rest = pa.from_long(everything.drop(columns="y"), targets="label", weight="w")
    assert rest.token_names == ("a", "b")
    by_name = pa.from_long(everything, sequence="who", order="when", tokens=["a", "b"])
    np.testing.assert_array_equal(by_name.X.values, expected.values)


def test_levels_of_an_index_are_named_like_columns():
    expected = pa.from_long(SMALL, **PLACES).X
    for levels in ("who", "when"):
        data = pa.from_long(SMALL.set_index(levels), **PLACES)
        np.testing.assert_array_equal(data.X.values, expected.values)
    both = SMALL.set_index("who", drop=False)
    with pytest.raises(InvalidInput, match="the frame has 2 columns called 'who'; rename"):
        pa.from_long(both, **PLACES)
    names = ["who", "when", "a", "a"]
    twice = Table.from_arrays([[1], [1], [2.0], [3.0]], names=names)
    with pytest.raises(InvalidInput, match="the frame has 2 columns called 'a'; rename"):
        pa.from_long(twice, sequence="who", order="when", tokens=["a"])


def test_whatever_takes_sequences_takes_such_a_frame():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((30, 4, 2)), rng.standard_normal(30)
    index = pd.MultiIndex.from_product([range(30), range(4)])
    frame = pd.DataFrame(X.reshape(-1, 2), index=index)
    np.testing.assert_array_equal(as_batch(frame).values, X.reshape(-1, 2))
    np.testing.assert_array_equal(pa.fit(frame, y).coef, pa.fit(X, y).coef)
    np.testing.assert_array_equal(pa.fit(pa.scan(frame, y)).coef, pa.fit(pa.scan(X, y)).coef)
    for layout in ("tokens_first", "channels_first"):
        model = pa.LinearAttentionRegressor(layout=layout).fit(frame, y)
        plain = pa.LinearAttentionRegressor().fit(X, y)
        np.testing.assert_array_equal(model.predict(frame), plain.predict(X))
        assert model.score(frame, y) == plain.score(X, y)
    layer = pa.LinearAttention(np.eye(2), np.eye(2), "causal")
    np.testing.assert_array_equal(np.stack(layer(frame)), layer(X))
    gaps = frame.copy()
    gaps.iloc[5, 1] = np.nan
    assert as_batch(gaps, missing=True).has_missing
    with pytest.raises(InvalidInput, match="the frame X, sequence 1, token 1: the column 1 has no"):
        pa.fit(gaps, y)


def test_sequences_whose_order_is_not_that_of_their_names_are_refused():
    """Targets beside them could be grouped in either order."""
    turned = pd.concat([INDEXED.loc[["v"]], INDEXED.loc[["u"]]])
    with pytest.raises(InvalidInput, match=r"not in the order of their names.*X.sort_index\(\)"):
        pa.fit(turned, [1.0, 2.0])
    assert list(pa.from_long(turned).ids) == ["u", "v"]


def test_targets_with_another_index_than_the_sequences_are_refused():
    index = pd.MultiIndex.from_product([list("abcdef"), range(3)])
    frame = pd.DataFrame(np.arange(36.0).reshape(18, 2), index=index)
    y = pd.Series([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], index=list("abcdef"))
    turned, others = y.iloc[::-1], y.set_axis(list("uvwxyz"))
    calls = (
        lambda y: pa.fit(frame, y),
        lambda y: pa.fit(pa.scan(frame, y)),
        lambda y: pa.Moments(2, 1).update(frame, y),
        lambda y: pa.learning_curve(frame, y, train_sizes=[2]),
        lambda y: pa.learn_softmax(frame, y, 1, mode="last"),
        lambda y: pa.LinearAttentionRegressor().fit(frame, y),
        lambda y: pa.LinearAttentionRegressor().partial_fit(frame, y),
        lambda y: pa.LinearAttentionClassifier(ridge=1.0).fit(frame, y > 0),
        lambda y: pa.LinearAttentionClassifier(ridge=1.0).partial_fit(frame, y > 0, [0, 1]),
    )
    for call in calls:
        for bad in (turned, others):
            with pytest.raises(InvalidInput, match=r"the index of the targets.*it is \['"):
                call(bad)
    model = pa.LinearAttentionRegressor(ridge=1.0)
    expected = model.fit(frame, y.to_numpy()).predict(frame)
    for good in (y, y.reset_index(drop=True), turned.loc[list("abcdef")]):
        np.testing.assert_array_equal(model.fit(frame, good).predict(frame), expected)
    with pytest.raises(InvalidInput, match="the index of the targets"):
        model.score(frame, turned)


def test_an_index_of_three_levels_is_refused():
    deep = pd.concat({"top": INDEXED})
    with pytest.raises(InvalidInput, match=r"the index of X must have two levels.*it has 3"):
        pa.fit(deep, [1.0, 2.0])
    with pytest.raises(InvalidInput, match="tokens must name the columns"):
        pa.from_long(deep)


# What is refused ----------------------------------------------------------------------------


def test_a_table_given_as_sequences_says_what_to_do():
    """A frame given to scan was called an array."""
    y = [1.0, 2.0]
    for kind in ("pandas", "polars", "Arrow table", "DuckDB"):
        made = KINDS[kind](SMALL)
        for call in (
            lambda X: pa.fit(X, y),
            pa.certify,
            lambda X: pa.scan(X, y),
            lambda X: pa.scan(X, sequence="who", tokens=["a"]),
            lambda X: pa.LinearAttentionRegressor().fit(X, y),
            lambda X: pa.LinearAttentionClassifier(layout="channels_first").fit(X, [0, 1]),
        ):
            with pytest.raises(InvalidType, match=r"got a table .*pa.from_long\(frame, sequence="):
                call(made)
    with pytest.raises(InvalidType, match="polars LazyFrame"):
        pa.fit(pl.from_pandas(SMALL).lazy(), y)
    with pytest.raises(InvalidInput, match=r"leave out tokens: pa\.from_long takes columns"):
        pa.scan(INDEXED, y, tokens=["a"])


def test_what_holds_both_is_told_apart():
    for both in (pa.from_long(SMALL, **PLACES), pa.data.planted(8, 4, 2, random_state=0)):
        for call in (pa.certify, pa.LinearAttention(np.eye(2), np.eye(2))):
            with pytest.raises(InvalidType, match=r"X must be .*give its \.X and \.Y"):
                call(both)


def test_a_table_to_scan_in_the_wrong_order_is_told_of_from_long(tmp_path):
    SMALL.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match=r"Sort the data by sequence.*pa.from_long"):
        pa.fit(pa.scan(tmp_path / "t.parquet", **NAMES))


TWICE = pd.DataFrame([[1, 1, 2.0, 3.0]], columns=["who", "when", "a", "a"])
REFUSED = {
    "no frame": (lambda: pa.from_long([1, 2], **PLACES), InvalidType, "frame must be a pandas", r"got \[1, 2\]", "scan"),
    "a path": (lambda: pa.from_long("t.parquet", **PLACES), InvalidType, "got 't.parquet'", "pa.scan reads files"),
    "a series": (lambda: pa.from_long(pl.from_pandas(SMALL["a"]), **PLACES), InvalidType, "a table with columns; got a Series"),
    "lazy": (lambda: pa.from_long(pl.from_pandas(SMALL).lazy(), **PLACES), InvalidType, "LazyFrame", r"\.collect\(\)"),
    "no column": (lambda: pa.from_long(SMALL, sequence="whom", tokens=["a"]), InvalidInput, "no column 'whom'", "Did you mean 'who'", "Its columns are"),
    "no column in polars": (lambda: pa.from_long(pl.from_pandas(SMALL), sequence="who", tokens=["aa"]), InvalidInput, "no column 'aa'", "Did you mean 'a'"),
    "no sequence": (lambda: pa.from_long(SMALL, tokens=["a"]), InvalidInput, "sequence must name the column", "'who'"),
    "no tokens": (lambda: pa.from_long(SMALL, sequence="who"), InvalidInput, "tokens must name the columns", "'a'"),
    "empty tokens": (lambda: pa.from_long(SMALL, sequence="who", tokens=[]), InvalidInput, "tokens must name at least one column"),
    "two names": (lambda: pa.from_long(SMALL, sequence="who", tokens=["a", "a"]), InvalidInput, "tokens names the column 'a' twice"),
    "two columns": (lambda: pa.from_long(TWICE, sequence="who", tokens=["a"]), InvalidInput, "2 columns called 'a'", "rename"),
    "list as a name": (lambda: pa.from_long(SMALL, sequence=["who"], tokens=["a"]), InvalidType, "sequence must be the name of a column", "who"),
    "text as tokens": (lambda: pa.from_long(SMALL, sequence="who", tokens=["label"]), InvalidType, "tokens must be columns of real numbers", "'label' holds text", "Convert"),
    "text as tokens, polars": (lambda: pa.from_long(pl.from_pandas(SMALL), sequence="who", tokens=["label"]), InvalidType, "'label' holds text"),
    "decimals": (lambda: pa.from_long(SMALL.assign(a=Decimal(1)), **PLACES), InvalidType, "'a' holds Decimals", "Convert"),
    "decimals of Arrow": (lambda: pa.from_long(pl.from_pandas(SMALL).with_columns(pl.lit(1).cast(pl.Decimal(5, 2)).alias("a")), **PLACES), InvalidType, "'a' holds decimal128"),
    "lists": (lambda: pa.from_long(pl.from_pandas(SMALL).with_columns(pl.lit([1.0]).alias("a")), **PLACES), InvalidType, "'a' holds .*list"),
    "complex": (lambda: pa.from_long(SMALL.assign(a=1j), **PLACES), InvalidType, "'a' holds complex128"),
    "times as tokens": (lambda: pa.from_long(SMALL.assign(a=TIMES), **PLACES), InvalidType, "'a' holds datetime64"),
    "times as targets": (lambda: pa.from_long(SMALL.assign(y=TIMES), **PLACES, targets="y"), InvalidType, "targets must be columns of real numbers or of texts", "'y'"),
    "text as order": (lambda: pa.from_long(SMALL, sequence="who", order="label", tokens="a"), InvalidType, "order must be a column of numbers, dates or times", "'label' holds text"),
    "text as weight": (lambda: pa.from_long(SMALL, **PLACES, weight="label"), InvalidType, "weight must be columns of real numbers"),
    "weights that change": (lambda: pa.from_long(SMALL, **PLACES, weight="y"), InvalidInput, "sequence 'u': the weight 'y' must be the same", r"0\.1 and 0\.2"),
    "targets of two kinds": (lambda: pa.from_long(SMALL, **PLACES, targets=["y", "label"]), InvalidInput, "all numbers or all texts", "two calls"),
    "one place twice": (lambda: pa.from_long(SMALL.assign(when=[1, 2, 1, 1, 2]), **PLACES), InvalidInput, "sequence 'v': the order 'when' is '1' in two rows", "place of its own"),
    "infinity": (lambda: pa.from_long(SMALL.assign(a=[1, 2, np.inf, 3, 4]), **PLACES, missing="keep"), InvalidInput, "sequence 'v', token 0: the column 'a' holds inf"),
    "an infinite target": (lambda: pa.from_long(SMALL.assign(y=[1, 2, -np.inf, 3, 4]), **PLACES, targets="y"), InvalidInput, "sequence 'v', token 0: the target 'y' is -inf"),
    "no rows": (lambda: pa.from_long(SMALL[:0], **PLACES), InvalidInput, "the frame has no rows"),
    "no rows, polars": (lambda: pa.from_long(pl.from_pandas(SMALL[:0]), **PLACES), InvalidInput, "the frame has no rows"),
    "no rows, index": (lambda: pa.fit(INDEXED[:0], [1.0]), InvalidInput, "the frame X has no rows"),
    "no columns, index": (lambda: pa.fit(INDEXED[[]], [1.0]), InvalidInput, "X has no columns"),
    "empty text": (lambda: pa.from_long(SMALL.replace({"who": {"u": ""}}), **PLACES), InvalidInput, "'who' must name the sequence", "empty text"),
    "mixed names": (lambda: pa.from_long(SMALL.assign(who=["a", 1, "a", 1, "a"]), **PLACES), InvalidType, "sequence must be a column", "compared"),
    "lists as names": (lambda: pa.from_long(SMALL.assign(who=[[1]] * 5), **PLACES), InvalidType, "sequence must be a column", "compared"),
    "missing": (lambda: pa.from_long(SMALL, **PLACES, missing=True), InvalidInput, "missing must be one of 'refuse', 'keep'; got True"),
    "target_per": (lambda: pa.from_long(SMALL, **PLACES, target_per="row"), InvalidInput, "target_per must be one of 'auto'", "got 'row'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_argument_what_came_and_what_to_do(name):
    call, kind, *words = REFUSED[name]
    with pytest.raises(PolyattnError) as refused:
        call()
    assert isinstance(refused.value, kind)
    for word in words:
        assert refused.match(word)


def test_columns_may_be_called_by_numbers_and_pairs():
    numbered = SMALL[["who", "when", "a", "b", "label"]].set_axis([0, 1, 2, 3, 4], axis=1)
    data = pa.from_long(numbered, sequence=0, order=1, tokens=[2, 3], targets=4)
    np.testing.assert_array_equal(data.X.values, pa.from_long(SMALL, **PLACES).X.values)
    np.testing.assert_array_equal(data.Y, ["walk", "run"])
    one = pa.from_long(numbered, sequence=0, order=1, tokens=2)
    assert one.X.n_dims == 1
    with pytest.raises(InvalidInput, match="no column 7"):
        pa.from_long(numbered, sequence=7, tokens=[2])
    pairs = SMALL[["who", "a"]].set_axis(pd.MultiIndex.from_tuples([("id", ""), ("x", 1)]), axis=1)
    data = pa.from_long(pairs, sequence=("id", ""), tokens=[("x", 1)])
    assert data.token_names == (("x", 1),)


def test_pandas_needs_no_pyarrow_and_others_say_that_they_do():
    code = """
import sys
sys.modules["pyarrow"] = None
import pandas as pd
import polyattn as pa
frame = pd.DataFrame({"who": [1, 1, 2], "t": [2, 1, 1], "a": [2.0, 1.0, 3.0]})
class Other:
    def __arrow_c_stream__(self): ...
print(pa.from_long(frame, sequence="who", order="t", tokens=["a"]).X.values[:, 0].tolist())
print(pa.fit(frame.set_index(["who", "t"]).sort_index(), [1.0, 2.0]).n_dims)
try:
    pa.from_long(Other(), sequence="who", tokens=["a"])
except pa.errors.MissingExtra as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert run[:2] == ["[1.0, 2.0, 3.0]", "1"]
    assert "pip install 'polyattn[arrow]'" in run[2]
