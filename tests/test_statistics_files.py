"""Saved and copied statistics, what they say of themselves, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given, settings

import planted
import polyattn as pa
from polyattn.errors import InvalidInput
from statistics_cases import (
    KINDS,
    contents,
    random_data,
)


@pytest.mark.parametrize("make", KINDS)
@given(data=random_data())
@settings(max_examples=20)
def test_saved_statistics_continue_as_if_nothing_had_happened(make, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("stats") / "stats.safetensors"
    stats = data.into(make)
    stats.save(path)
    loaded = make.load(path)
    assert type(loaded) is make
    assert contents(loaded)[1] == contents(stats)[1]
    for each in (stats, loaded):
        each.update(data.X, data.targets, data.weights)
    for name, array in contents(stats)[0].items():
        np.testing.assert_array_equal(contents(loaded)[0][name], array)


@pytest.mark.parametrize("make", KINDS)
def test_empty_statistics_are_saved_too(make, tmp_path):
    make(3, 2, "full", bias=True).save(tmp_path / "empty")
    loaded = make.load(tmp_path / "empty")
    assert (loaded.n_dims, loaded.n_outputs, loaded.mode, loaded.bias) == (3, 2, "full", True)
    assert (loaded.n_rows, loaded.token_exponent) == (0, None)


def test_one_kind_is_not_loaded_as_the_other(tmp_path):
    pa.Moments(2, 1).save(tmp_path / "m")
    with pytest.raises(OSError, match=r"'moments'.*'triangular_factor'"):
        pa.TriangularFactor.load(tmp_path / "m")


@pytest.mark.parametrize("make", KINDS)
def test_a_copy_is_independent(make):
    rng = np.random.default_rng(0)
    stats = make(2, 1).update(rng.standard_normal((9, 3, 2)), rng.standard_normal(9))
    before = contents(stats)
    stats.copy().update(rng.standard_normal((9, 3, 2)), rng.standard_normal(9))
    for name, array in before[0].items():
        np.testing.assert_array_equal(contents(stats)[0][name], array)


ONE = np.ones((2, 3, 2))

REFUSED_UPDATES = {
    "width": (ONE[..., :1], np.ones((2, 1)), "2 coordinates.*got 1"),
    "outputs": (ONE, np.ones((2, 3)), "Y must have 1 output; got 3"),
    "targets per token": (ONE, np.ones((2, 3, 1)), "mode 'last'"),
    "no targets": (ONE, None, "n_outputs=1.*Y is missing"),
    "nan": (ONE * np.nan, np.ones((2, 1)), "NaN"),
    "count": (ONE, np.ones((3, 1)), "2 sequences.*3 targets"),
}


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", REFUSED_UPDATES)
def test_a_refused_update_changes_nothing(make, name):
    X, Y, words = REFUSED_UPDATES[name]
    stats = make(2, 1).update(ONE, np.ones((2, 1)))
    before = contents(stats)
    with pytest.raises(InvalidInput, match=words):
        stats.update(X, Y)
    assert contents(stats)[1] == before[1]
    for array_name, array in before[0].items():
        np.testing.assert_array_equal(contents(stats)[0][array_name], array)


@pytest.mark.parametrize("make", KINDS)
def test_statistics_of_inputs_alone(make):
    stats = make(2, mode="causal").update(ONE)
    assert (stats.n_outputs, stats.n_rows) == (0, 6)
    with pytest.raises(InvalidInput, match=r"n_outputs=0.*take no Y"):
        stats.update(ONE, np.ones((2, 3, 1)))
    with pytest.raises(InvalidInput, match="no targets"):
        pa.fit(statistics=stats)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0,), "n_dims.*at least 1.*0"),
        ((2.5,), "n_dims.*2.5"),
        ((True,), "n_dims.*True"),
        ((2, -1), "n_outputs.*at least 0.*-1"),
        ((2, 1, "bidirectional"), "mode.*'last'.*'bidirectional'"),
    ],
)
def test_sizes_are_checked(make, arguments, words):
    with pytest.raises(InvalidInput, match=words):
        make(*arguments)


def test_empty_moments_have_no_second_moment():
    with pytest.raises(InvalidInput, match=r"empty.*update"):
        pa.Moments(2, 1).second_moment  # noqa: B018


def test_the_spectrum_decides_identifiability():
    """Ranks of Gaussian and one-hot tokens at d = 3: 18 and 9 of 18 [THEORY: 3]."""
    for kind, rank in (("tall", 18), ("one_hot", 9)):
        stats = pa.Moments(3).update(planted.problem(kind).X)
        values = stats.spectrum()
        assert np.all(np.diff(values) >= 0)
        assert np.count_nonzero(values > 1e-12 * values[-1]) == rank


@pytest.mark.parametrize("make", KINDS)
def test_repr(make):
    assert repr(make(2, 1, "causal", bias=True).update(ONE, np.ones((2, 3)))) == (
        f"{make.__name__}(2 sequences, 6 predicted positions, 18 features, 1 output, "
        "mode 'causal', bias)"
    )
