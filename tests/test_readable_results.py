"""What is printed can be read: heads, matches and bounds as tables, ranks as what is known."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.display import COLUMNS, table_lines
from polyattn.errors import InvalidInput
from polyattn.heads import Compression

RNG = np.random.default_rng(0)
TASK = pa.data.planted(120, 6, 3, n_heads=2, mode="last", noise=0.1, random_state=0)
SMALL = pa.data.planted(40, 4, 2, n_heads=1, mode="last", random_state=0)
SCALED = Compression(
    RNG.standard_normal((3, 2, 2)), RNG.standard_normal((3, 2, 1)), 0.0, None,
    "Three heads.", head_scales=np.array([0, 1, 1]),
)  # fmt: skip
SOFTMAX = pa.data.random_softmax_layer(3, 2, random_state=0)


def readable(text):
    """Sentences and tables: no dump of a dataclass, no array, no line that is too long."""
    assert "array(" not in text
    assert "=" not in text.replace("ridge=", "").replace("bias=", "").replace("mode=", "")
    assert all(len(line) <= COLUMNS + 2 for line in text.splitlines())
    assert "unknown of" not in text
    return text


THINGS = {
    "heads": lambda: pa.fit(SMALL.X, SMALL.Y).heads,
    "one head": lambda: pa.fit(SMALL.X, SMALL.Y, n_heads=1).heads,
    "heads of scales": lambda: SCALED,
    "a match": lambda: pa.match_heads(TASK.layer, TASK.layer),
    "generalisation": lambda: pa.fit(TASK.X, TASK.Y).generalisation(),
    "no promise": lambda: pa.fit(TASK.X[:9], TASK.Y[:9]).generalisation(),
    "queries": lambda: pa.learn_from_queries(SOFTMAX, 3, n_heads=2),
}


@pytest.mark.parametrize("name", THINGS)
def test_results_are_sentences_and_tables(name):
    thing = THINGS[name]()
    text = readable(str(thing))
    assert " ".join(text.split()).startswith(thing.sentence)
    assert len(text.splitlines()) > 2
    assert len(repr(thing)) < 140
    readable(repr(thing))
    card = thing._repr_html_()
    assert card.lstrip().startswith("<")
    assert "array(" not in card
    described = thing.describe()
    assert described.title
    assert thing.to_dict()


def test_the_table_of_heads_has_a_line_for_each():
    heads = pa.fit(SMALL.X, SMALL.Y).heads
    lines = heads.describe().lines
    assert len(lines) == 1 + heads.n_heads
    sizes = [np.linalg.norm(a) * np.linalg.norm(v) for a, v in zip(heads.attn, heads.value,
                                                                   strict=True)]  # fmt: skip
    assert [float(line.split()[-1]) for line in lines[1:]] == pytest.approx(sizes, rel=1e-3)
    assert SCALED.describe().lines[0] == "head  scale  size"
    assert [line.split()[1] for line in SCALED.describe().lines[1:]] == ["0", "1", "1"]


def test_the_table_of_a_match_says_which_head_is_which():
    one = pa.LinearAttention(TASK.layer.attn[::-1], TASK.layer.value[::-1], mode="last")
    match = pa.match_heads(one, TASK.layer)
    assert [line.split()[:2] for line in match.describe().lines[1:]] == [["0", "1"], ["1", "0"]]
    missing = pa.match_heads(
        pa.LinearAttention(TASK.layer.attn[:1], TASK.layer.value[:1], mode="last"), TASK.layer
    )
    assert [line.split()[:2] for line in missing.describe().lines[1:]] == [["0", "0"], ["1", "–"]]
    assert repr(missing) == "HeadMatch(1 of 2 heads matched)"


def test_long_tables_are_cut():
    lines = table_lines(("head", "size"), [(h, 1.0) for h in range(100)])
    assert len(lines) == 18
    assert lines[-1] == "... and 84 more"
    assert table_lines(("a",), []) == ("a",)


def test_a_rank_that_was_not_computed_is_bounded():
    """Certificates of estimators read "numerical rank unknown of 726"."""
    X = RNG.standard_normal((30, 4, 10))
    model = pa.LinearAttentionRegressor(ridge=1.0, bias=True).fit(X, X[:, 0, 0])
    certificate = model.certificate_
    assert certificate.rank is None
    text = readable(str(certificate))
    assert "rank at most 30 of 726 (counting decides" in " ".join(text.split())
    assert "rank, at most" in text
    assert "rank at most 30 of 726" in repr(certificate)
    assert certificate.to_dict()["rank"] is None
    assert certificate.data_sizes == "30 sequences, 4 tokens of 10 coordinates"
    wide = pa.certify(RNG.standard_normal((12, 3, 20)))
    assert "unknown" not in str(wide.outcome)


# Clear errors where there were bare ones ------------------------------------------------------


def test_gaussian_noise_needs_the_number_of_outputs():
    certificate = pa.certify(RNG.standard_normal((100, 4, 2)))
    with pytest.raises(InvalidInput, match=r"noise=1.*needs n_outputs beside it.*Give n_outputs"):
        certificate.bound(np.ones((1, 2, 2)), 1.0, noise=1)
    assert np.all(np.isfinite(certificate.bound(np.ones((1, 2, 2)), 1.0, noise=1, n_outputs=1)))


HUGE = 10**400


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"error": HUGE},
            "error must be finite, a number that float64 can hold; got an int",
        ),
        ({"noise": HUGE}, "noise must be finite"),
        ({"leverage": HUGE}, "leverage must be finite"),
        ({"confidence": HUGE}, "confidence must lie between 0 and 1"),
        ({"n_outputs": HUGE}, "more coefficients than float64 can count"),
        ({"n_dims": HUGE}, "more coefficients than float64 can count"),
        ({"n_dims": 10**120}, "more coefficients than float64 can count"),
    ],
)
def test_numbers_beyond_float64_are_refused_by_name(changed, words):
    with pytest.raises(InvalidInput, match=words):
        pa.sample_size(**{"n_dims": 4, "error": 0.1} | changed)


def test_learning_softmax_takes_no_source(tmp_path):
    np.savez(tmp_path / "a.npz", X=TASK.X, Y=TASK.Y)
    source = pa.scan(str(tmp_path / "a.npz"))
    for given in ((source,), (source, TASK.Y)):
        with pytest.raises(InvalidInput, match=r"got a source.*read them into memory"):
            pa.learn_softmax(*given)
    with pytest.raises(InvalidInput, match="needs targets Y beside"):
        pa.learn_softmax(TASK.X)


def test_targets_of_tokens_are_refused_in_mode_last():
    ragged = [each[: 1 + i % 4] for i, each in enumerate(TASK.X)]
    for targets in ([np.ones((len(each), 2)) for each in ragged], [list(e[:, 0]) for e in ragged]):
        with pytest.raises(InvalidInput, match=r"mode 'last'.*of different lengths.*mode='causal'"):
            pa.fit(ragged, targets)
    with pytest.raises(InvalidInput, match="one target per sequence; got shape"):
        pa.fit(TASK.X, np.ones((120, 6, 1)))
    assert pa.fit(ragged, [[1.0, 2.0]] * 120).n_outputs == 2


def test_iterations_at_rounding_are_ok():
    exact = pa.fit(TASK.X, TASK.Y, solver="iterative")
    assert (exact.outcome.name, exact.outcome.ok) == ("iterative", True)
    # Negative controls: other optima there are, or a flat direction.
    few = pa.fit(TASK.X[:9], TASK.Y[:9], solver="iterative")
    assert (few.outcome.name, few.outcome.ok) == ("iterative", False)
    flat = pa.fit(TASK.X * [1, 1, 0], TASK.Y, solver="iterative")
    assert not flat.outcome.ok
