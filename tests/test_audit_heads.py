"""Audits of softmax heads: shares by order, of planted heads, beside features written out."""

import numpy as np
import pytest

import polyattn as pa
from command_endings import parsed, refused
from head_orders import WrittenHead, shares_by_order
from polyattn.auditing.head_audit import ORDERS, percent
from polyattn.auditing.order_pairs import _positions
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.records import Record
from polyattn.report import make_page

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order(monkeypatch):
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(0))


MODES = ("full", "causal", "last")


def sequences(n_sequences=240, n_tokens=5, n_dims=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n_sequences, n_tokens, n_dims))


def directions(n_sequences, n_tokens, n_dims, seed=0):
    """Tokens of length one, none of which are alike."""
    X = sequences(n_sequences, n_tokens, n_dims, seed)
    return X / np.linalg.norm(X, axis=2, keepdims=True)


def layer(attn, mode="full", bias=False, seed=1, n_outputs=2):
    attn = np.asarray(attn)
    attn = attn if attn.ndim == 3 else attn[None]
    value = np.random.default_rng(seed).standard_normal((len(attn), attn.shape[1], n_outputs))
    return pa.SoftmaxAttention(attn, value, mode, bias)


def with_constant(X):
    return np.concatenate([X, np.ones((*X.shape[:2], 1))], axis=2)


class TestReference:
    @pytest.mark.parametrize("mode", MODES)
    def test_all_directions(self, mode):
        X, others = sequences(60, 4, 2), sequences(20, 4, 2, seed=5) + 0.2
        soft = layer(1.3 * RNG.standard_normal((2, 2)), mode)
        found = pa.audit(soft, X, X_test=others)
        head = WrittenHead(soft.attn[0], soft.value[0], np.eye(2), np.eye(2))
        training, shares = shares_by_order(head, list(X), list(others), mode)
        np.testing.assert_allclose(found.training_shares[0], training, atol=1e-7)
        np.testing.assert_allclose(found.shares[0], shares, atol=1e-5)

    @pytest.mark.parametrize("mode", MODES)
    def test_few_directions_a_constant_and_unequal_lengths(self, mode):
        """A of rank one with biases: keys have two directions, queries one."""
        rng = np.random.default_rng(3)
        X = [rng.standard_normal((n, 3)) + 0.5 for n in (3, 1, 5, 4) * 20]
        others = [rng.standard_normal((n, 3)) + 0.5 for n in (2, 5, 6)]
        left, right, offset = rng.standard_normal((3, 4))
        left[-1] = 0.0
        attn = np.outer(left, right)
        attn[-1] += offset
        soft = layer(attn, mode, bias=True)
        found = pa.audit(soft, X, X_test=others)
        query, key = left[:, None], np.column_stack([right, offset])
        query[-1] = key[-1] = 0.0  # of a coordinate that is 1 nothing but constants
        head = WrittenHead(soft.attn[0], soft.value[0], query, key)
        wide = [[np.column_stack([x, np.ones(len(x))]) for x in each] for each in (X, others)]
        training, shares = shares_by_order(head, *wide, mode)
        np.testing.assert_allclose(found.training_shares[0], training, atol=1e-6)
        np.testing.assert_allclose(found.shares[0], shares, atol=1e-4)

    def test_another_fit_is_seen(self):
        """Negative control: the reference with other features."""
        X = sequences(60, 4, 2)
        soft = layer(1.3 * RNG.standard_normal((2, 2)))
        found = pa.audit(soft, X, X_test=X)
        head = WrittenHead(soft.attn[0], soft.value[0], np.eye(2)[:, :1], np.eye(2))
        training, _ = shares_by_order(head, list(X), list(X), "full")
        assert abs(found.training_shares[0] - training)[2] > 1e-3


class TestPlantedHeads:
    @pytest.mark.parametrize("mode", MODES)
    def test_tiny_logits_are_linear_attention(self, mode):
        X = sequences()
        soft = layer(0.02 * RNG.standard_normal((3, 3)), mode)
        found = pa.audit(soft, X)
        assert found.outcome.name == "linear"
        token, mean, linear, second = found.shares[0]
        assert token < 0.6
        assert 0.99 < mean <= linear + 1e-4
        # What is left shrinks with the square of the logits.
        smaller = pa.audit(layer(0.002 * soft.attn[0] / 0.02, mode, seed=1), X)
        assert 1.0 - smaller.shares[0, 2] < 0.02 * (1.0 - linear)
        assert second > 0.99

    @pytest.mark.parametrize("mode", MODES)
    def test_uniform_attention_is_the_mean_of_the_values(self, mode):
        """The order ``mean`` explains it, and not a map of the token itself."""
        found = pa.audit(layer(np.zeros((3, 3)), mode), sequences())
        assert found.level(0) == "mean"
        assert found.shares[0, 0] < 0.6
        np.testing.assert_allclose(found.shares[0, 1:], 1.0, atol=1e-9)
        assert "100 % the mean of the values" in found.sentence

    @pytest.mark.parametrize("mode", MODES)
    def test_a_head_that_sees_its_own_token_is_a_map_of_it(self, mode):
        found = pa.audit(layer(2e4 * np.eye(6), mode), directions(120, 5, 6))
        assert found.level(0) == "token"
        np.testing.assert_allclose(found.shares[0, 0], 1.0, atol=1e-4)

    def test_sharp_random_heads_are_explained_by_nothing(self):
        X = sequences(300, 10, 6)
        found = pa.audit(layer(50.0 * np.random.default_rng(2).standard_normal((2, 6, 6))), X)
        assert found.outcome.name == "not_linear"
        assert np.all(found.shares < 0.7)
        assert "is not explained by second order" in found.sentence

    def test_linear_attention_to_keys_alone(self):
        """Logits that only the key sees have no directions of queries."""
        X = sequences(300, 6, 3) + 1.0
        attn = np.zeros((4, 4))
        attn[3, :3] = [0.3, -0.2, 0.1]
        found = pa.audit(layer(attn, bias=True), X)
        assert found.level(0) in ("mean", "linear")
        assert found.shares[0, 3] > found.shares[0, 1]
        assert found.shares[0, 3] > 0.95

    def test_one_token_is_a_map_of_it(self):
        for mode in MODES:
            found = pa.audit(layer(RNG.standard_normal((2, 3, 3)), mode), sequences(40, 1))
            np.testing.assert_allclose(found.shares, 1.0, atol=1e-6)

    def test_a_head_without_values_is_constant(self):
        value = np.zeros((2, 3, 2))
        value[1] = RNG.standard_normal((3, 2))
        soft = pa.SoftmaxAttention(RNG.standard_normal((2, 3, 3)), value)
        found = pa.audit(soft, sequences(40))
        np.testing.assert_array_equal(found.shares[0], 1.0)
        np.testing.assert_allclose(found.sizes, [0.0, 1.0])
        both = pa.audit(pa.SoftmaxAttention(soft.attn, np.zeros((2, 3, 2))), sequences(40))
        assert both.outcome.name == "linear"
        assert "is constant" in both.sentence

    def test_tokens_that_do_not_differ(self):
        # Of different lengths: copies of one sequence leave nothing to measure on.
        X = [np.full((4 + i % 3, 3), 1e8 / 3) for i in range(9)]
        found = pa.audit(layer(RNG.standard_normal((3, 3))), X)
        np.testing.assert_array_equal(found.shares, 1.0)

    def test_one_coordinate_and_one_output(self):
        found = pa.audit(layer([[0.7]], n_outputs=1), sequences(80, 4, 1))
        assert np.all(np.diff(found.training_shares[0]) > -1e-7)
        assert found.shares[0, 3] > 0.8


class TestShares:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("n_sequences", [6, 40, 200])
    def test_orders_are_nested(self, mode, n_sequences):
        soft = layer(RNG.standard_normal((3, 4, 4)) * [[[0.3]], [[1.0]], [[4.0]]], mode)
        found = pa.audit(soft, sequences(n_sequences, 6, 4))
        assert np.all(np.diff(found.training_shares, axis=1) > -1e-6)
        assert np.all(found.training_shares <= 1.0 + 1e-9)

    def test_the_whole_layer_is_the_sum_of_its_heads(self):
        """Two heads with opposite values: their sum is what remains of both, and small."""
        A = RNG.standard_normal((3, 3))
        V = RNG.standard_normal((3, 2))
        soft = pa.SoftmaxAttention(np.stack([0.0 * A, 2.0 * A]), np.stack([V, V]))
        found = pa.audit(soft, sequences())
        assert found.shares[1, 2] < found.layer_shares[0, 2] < found.shares[0, 2]
        alone = pa.audit(pa.SoftmaxAttention(2.0 * A, V), sequences())
        np.testing.assert_allclose(alone.shares[0], found.shares[1], atol=1e-9)
        np.testing.assert_allclose(alone.layer_shares[0], found.shares[1], atol=1e-9)
        np.testing.assert_allclose(alone.layer_errors[0], found.errors[1], atol=1e-9)

    def test_standard_errors_are_those_of_other_sequences(self):
        soft = layer(1.5 * np.random.default_rng(4).standard_normal((3, 3)))
        train = sequences(400)
        drawn = [pa.audit(soft, train, X_test=sequences(60, seed=9 + i)) for i in range(30)]
        spread = np.std([each.shares[0] for each in drawn], axis=0)
        said = np.mean([each.errors[0] for each in drawn], axis=0)
        assert np.all((0.6 * spread < said) & (said < 1.6 * spread))

    def test_the_constant(self):
        """A coordinate that is 100 makes outputs nearly constant, and shares do not see it."""
        X = sequences()
        soft = layer(RNG.standard_normal((4, 4)), bias=True)
        value = soft.value.copy()
        value[:, -1] += 100.0
        far = pa.SoftmaxAttention(soft.attn, value, bias=True)
        near, moved = pa.audit(soft, X), pa.audit(far, X)
        np.testing.assert_allclose(moved.shares, near.shares, atol=1e-9)
        assert moved.constant_shares[0] > 0.95 > near.constant_shares[0]

    def test_leading_directions_hold_most_of_the_logits(self):
        sizes = np.array([4.0, 2.0, 1.0, 0.5, 0.25, 0.1, 0.05, 0.02])
        found = pa.audit(layer(np.diag(sizes)), sequences(200, 5, 8))
        assert 0.97 < found.logit_shares[0] < 1.0
        assert found.logit_sizes[0] == pytest.approx(np.linalg.norm(sizes), rel=0.2)
        few = pa.audit(layer(np.diag([1.0, 2.0, 3.0])), sequences())
        assert few.logit_shares[0] == pytest.approx(1.0)


@pytest.fixture(scope="module")
def usual():
    rng = np.random.default_rng(6)
    soft = layer(rng.standard_normal((2, 3, 3)) * [[[0.5]], [[2.0]]])
    return soft, pa.audit(soft, sequences())


class TestInvariance:
    @pytest.mark.parametrize("unit", [1e-6, 1e5])
    def test_units_of_tokens_and_outputs(self, usual, unit):
        soft, known = usual
        units = np.array([unit, 1.0, 7.0])
        attn = soft.attn / units[:, None] / units
        scaled = pa.SoftmaxAttention(attn, 1e-3 * unit * soft.value / units[:, None])
        found = pa.audit(scaled, sequences() * units)
        np.testing.assert_allclose(found.shares, known.shares, atol=1e-6)
        np.testing.assert_allclose(found.layer_shares, known.layer_shares, atol=1e-6)
        np.testing.assert_allclose(found.logit_sizes, known.logit_sizes, rtol=1e-6)

    def test_turned_coordinates_and_outputs(self, usual):
        soft, known = usual
        turn, of_outputs = (np.linalg.qr(RNG.standard_normal((n, n)))[0] for n in (3, 2))
        turned = pa.SoftmaxAttention(turn.T @ soft.attn @ turn, turn.T @ soft.value @ of_outputs)
        found = pa.audit(turned, sequences() @ turn)
        np.testing.assert_allclose(found.shares, known.shares, atol=1e-7)
        np.testing.assert_allclose(found.errors, known.errors, atol=1e-7)

    def test_what_softmax_does_not_see(self, usual):
        """A bias and a column of it shift all logits of a query alike."""
        soft, known = usual
        attn = np.zeros((2, 4, 4))
        attn[:, :3, :3] = soft.attn
        attn[:, :, 3] = 5.0
        value = np.concatenate([soft.value, np.ones((2, 1, 2))], axis=1)
        found = pa.audit(pa.SoftmaxAttention(attn, value, bias=True), sequences())
        np.testing.assert_allclose(found.shares, known.shares, atol=1e-7)

    def test_order_of_tokens_and_of_sequences(self, usual):
        soft, _ = usual
        X, others = sequences(), sequences(50, seed=7)
        known = pa.audit(soft, X, X_test=others)
        found = pa.audit(soft, X[::-1, ::-1], X_test=others[RNG.permutation(50), ::-1])
        np.testing.assert_allclose(found.shares, known.shares, atol=1e-7)

    def test_kinds_of_arrays(self, usual):
        soft, known = usual
        X = sequences()
        X.setflags(write=False)
        as_list = pa.audit(soft, list(X))
        np.testing.assert_array_equal(as_list.shares, known.shares)
        single = pa.audit(soft, X.astype(np.float32))
        np.testing.assert_allclose(single.shares, known.shares, atol=1e-4)

    def test_pieces_do_not_matter(self, usual, monkeypatch):
        soft, known = usual
        monkeypatch.setattr("polyattn.auditing.order_pairs.BLOCK_NUMBERS", 2000)
        monkeypatch.setattr("polyattn.auditing.order_fits.BLOCK_NUMBERS", 10)
        np.testing.assert_allclose(pa.audit(soft, sequences()).shares, known.shares, atol=1e-8)

    def test_many_positions_of_causal_layers_are_thinned_out(self, monkeypatch):
        soft, X = layer(0.5 * np.eye(3), "causal"), sequences(300, 8)
        known = pa.audit(soft, X)
        monkeypatch.setattr("polyattn.auditing.audit_heads.MOST_POSITIONS", 600)
        found = pa.audit(soft, X)
        assert not np.array_equal(found.shares, known.shares)
        np.testing.assert_allclose(found.shares, known.shares, atol=0.05)
        assert np.all(np.diff(found.training_shares, axis=1) > -1e-6)


class TestRotary:
    @pytest.mark.parametrize("mode", MODES)
    def test_planes_that_are_not_turned_change_nothing(self, mode):
        query, key = RNG.standard_normal((2, 2, 3, 4))
        value = RNG.standard_normal((2, 3, 2))
        still = pa.SoftmaxAttention((query, key), value, mode, rotary=[0.0, 0.0])
        plain = pa.SoftmaxAttention(query @ key.swapaxes(1, 2), value, mode)
        ragged = [x[: 2 + i % 4] for i, x in enumerate(sequences(80))]
        known, found = pa.audit(plain, ragged), pa.audit(still, ragged)
        np.testing.assert_allclose(found.shares, known.shares, atol=1e-6)
        np.testing.assert_allclose(found.logit_sizes, known.logit_sizes, rtol=1e-9)

    def test_small_logits_are_linear_attention_of_turned_queries_and_keys(self):
        """Mean values do not explain what depends on positions; linear attention does."""
        query, key = RNG.standard_normal((2, 1, 3, 4))
        query[:, -1] = key[:, -1] = [1.0, 0.0, 0.0, 0.0]  # of the constant: logits by offset
        value = np.vstack([RNG.standard_normal((2, 2)), np.zeros((1, 2))])[None]
        soft = pa.SoftmaxAttention((0.3 * query, key), value, bias=True, rotary=[0.7, 0.1])
        found = pa.audit(soft, 0.3 * sequences(300, 8, 2))
        assert found.shares[0, 1] < 0.97
        assert found.shares[0, 2] > 0.985
        assert found.explains("linear")[0]


class TestArguments:
    def test_projections_and_modules_are_layers(self):
        soft = layer(RNG.standard_normal((2, 3, 3)))
        known = pa.audit(soft, sequences(60)).shares
        found = pa.audit(pa.interop.to_projections(soft), sequences(60))
        np.testing.assert_allclose(found.shares, known, atol=1e-7)
        module = pa.interop.to_torch(soft)
        np.testing.assert_allclose(pa.audit(module, sequences(60)).shares, known, atol=1e-7)

    def test_several_layers(self):
        first, second = layer(0.1 * RNG.standard_normal((2, 3, 3))), layer(np.eye(2), "causal")
        X = [sequences(60), sequences(60, 4, 2)]
        both = pa.audit([first, second], X)
        alone = [pa.audit(each, own) for each, own in zip((first, second), X, strict=True)]
        np.testing.assert_array_equal(both.shares, np.concatenate([a.shares for a in alone]))
        np.testing.assert_array_equal(both.head_layers, [0, 0, 1])
        assert (both.n_layers, both.n_heads, both.modes) == (2, 3, ("full", "causal"))
        assert [both.name_of(h) for h in range(3)] == [
            "head 0 of layer 0", "head 1 of layer 0", "head 0 of layer 1",
        ]  # fmt: skip

    def test_sequences_to_measure_on(self):
        soft, X = layer(np.eye(3)), sequences(80)
        given = pa.audit(soft, X[:60], X_test=X[60:])
        assert (given.n_training[0], given.n_held_out[0]) == (60, 20)
        split = pa.audit(soft, X)
        assert (split.n_training[0], split.n_held_out[0]) == (60, 20)
        np.testing.assert_array_equal(pa.audit(soft, X).shares, split.shares)
        assert not np.array_equal(pa.audit(soft, X, random_state=1).shares, split.shares)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"layer": pa.LinearAttention(np.eye(3), np.eye(3))},
                "looks into the heads of softmax",
            ),
            ({"layer": lambda X: X}, "got function"),
            ({"layer": []}, "empty list"),
            ({"layer": [layer(np.eye(3))]}, "must be a list of 1"),
            ({"layer": [layer(np.eye(3))], "X": [sequences(), sequences()]}, "got 2 of them"),
            ({"X": sequences(1)}, "X has one alone"),
            ({"X": sequences(9, 4, 2)}, "3 coordinates"),
            ({"X_test": sequences(9, 4, 2)}, "X_test"),
            ({"X": np.full((4, 3, 3), np.nan)}, "NaN"),
            ({"mode": "full"}, "mode belongs to an audit with targets"),
            ({"domain": "boolean"}, "domain belongs"),
            ({"Y": sequences(), "X_test": sequences()}, "X_test belongs to an audit of heads"),
        ],
    )
    def test_misuse(self, change, message):
        given = {"layer": layer(np.eye(3)), "X": sequences()} | change
        with pytest.raises(InvalidInput, match=message):
            pa.audit(**given)


def of_few_sequences():
    """A head that linear attention explains on the sequences of the fit alone."""
    soft = layer(3.0 * np.random.default_rng(8).standard_normal((4, 4)), n_outputs=1)
    return soft, sequences(8, 2, 4)


class TestInWords:
    def test_a_fit_that_holds_on_its_own_data_alone_decides_nothing(self):
        found = pa.audit(*of_few_sequences())
        assert found.training_shares[0, 2] > 0.99
        assert found.outcome.name == "undecided"
        assert not found.outcome.ok
        assert "more sequences" in found.sentence

    def test_parts_of_a_layer(self):
        soft = layer(RNG.standard_normal((3, 3, 3)) * [[[1e-3]], [[0.0]], [[9.0]]])
        found = pa.audit(soft, sequences())
        assert found.outcome.name == "partly_linear"
        assert found.outcome.ok
        assert "linear attention explains at least 90 % of 2 of 3 heads" in found.sentence
        assert "head 2 is not explained by second order" in found.sentence
        said = " ".join(found.sentences(0))
        assert "Heads explained by the mean of the values: 0 (" in said
        assert "Head not explained by second order: 2 (" in said

    def test_shares(self):
        assert [percent(each) for each in (0.313, 0.997, 0.9996, 1.0, -0.2)] == [
            "31 %", "99.7 %", "100 %", "100 %", "-20 %",
        ]  # fmt: skip
        assert ORDERS == ("token", "mean", "linear", "second")


class TestInterfaces:
    @pytest.fixture
    def files(self, run):
        soft = layer(RNG.standard_normal((2, 3, 3)) * [[[0.05]], [[1.0]]])
        pa.save(soft, "soft.safetensors")
        X = sequences(80)
        np.savez("x.npz", X=X)
        np.savez("both.npz", X=X, Y=soft(X))
        np.savez("weighted.npz", X=X, weights=np.ones(80))
        return run

    def test_the_command(self, files):
        done = files("audit", "soft.safetensors", "x.npz", "-o", "heads.safetensors")
        assert done.exit_code == 0
        assert "of 1 of 2 heads" in done.output
        known = pa.audit(pa.load("soft.safetensors"), sequences(80))
        assert pa.load("heads.safetensors").to_full_dict() == known.to_full_dict()
        content = parsed(files("audit", "soft.safetensors", "x.npz", "--json"))
        assert content["shares"] == known.shares.tolist()
        assert files("report", "heads.safetensors").exit_code == 0
        assert "risk" in files("audit", "soft.safetensors", "both.npz").output

    def test_what_the_command_refuses(self, files):
        refused(files("audit", "soft.safetensors", "weighted.npz"), "without weights")
        done = files("audit", "soft.safetensors", "x.npz", "--domain", "boolean")
        refused(done, "--domain belongs")

    def test_undecided_heads_have_their_exit_code(self, files):
        pa.save(of_few_sequences()[0], "sharp.safetensors")
        np.savez("few.npz", X=of_few_sequences()[1])
        assert files("audit", "sharp.safetensors", "few.npz").exit_code == 4

    def test_the_page(self, tmp_path):
        soft = layer(RNG.standard_normal((3, 3, 3)))
        both = pa.audit([soft, soft], [sequences(60)] * 2)
        page = make_page(both)
        assert [each.title for each in page.sections] == [
            "How linear are the heads?", "Layer 0", "Layer 1", "What was measured",
        ]  # fmt: skip
        html = page.sections[0].body + page.sections[1].body
        assert "Shares over layers and heads" in html
        assert "Shares of the heads of layer 0" in html
        alone = make_page(pa.audit(soft, sequences(60)))
        assert alone.sections[1].title == "Head by head"
        with pytest.raises(InvalidInput, match="X says nothing about a HeadAudit"):
            both.report(tmp_path / "page.html", sequences())

    def test_bars_never_shrink_and_never_exceed_what_was_held_out(self):
        soft = layer(2.0 * RNG.standard_normal((3, 3)))
        found = pa.audit(soft, sequences(20))
        figure = found.plot()
        bars = [box for box in figure.axes[0].patches if box.get_height() == 0.8]
        assert all(bar.get_width() >= 0.0 for bar in bars)
        ends = max(bar.get_x() + bar.get_width() for bar in bars)
        assert ends <= max(found.shares.max(), found.layer_shares.max(), 0.0) + 1e-12

    def test_damaged_files_are_refused(self):
        record = pa.audit(layer(np.eye(3)), sequences(20)).to_record()
        for name, wrong in (
            ("shares", np.zeros((1, 3))),
            ("head_layers", np.array([1])),
            ("errors", np.full((1, 4), np.nan)),
            ("sizes", np.array([-1.0])),
        ):
            arrays = record.arrays | {name: wrong}
            with pytest.raises(FileFormatError, match=name):
                pa.HeadAudit.from_record(Record(record.kind, arrays, record.metadata))
        with pytest.raises(FileFormatError, match="modes"):
            pa.HeadAudit.from_record(Record(record.kind, record.arrays, {"modes": []}))


def test_many_positions_of_causal_layers_are_thinned_evenly():
    """Fits of late positions alone do not hold at all of them."""
    soft = pa.data.random_softmax_layer(4, n_heads=1, random_state=4, mode="causal")
    few, many = (pa.audit(soft, sequences(n, 12, 4)) for n in (450, 3000))
    np.testing.assert_allclose(many.shares[0, :3], few.shares[0, :3], atol=0.03)
    assert np.all(np.diff(many.shares[0]) > 0)
    for n, step in ((12, 6), (12, 5), (3, 40), (1, 7)):
        positions = _positions(np.arange(4 * n), n, step)
        counts = np.bincount(positions.ravel(), minlength=n)
        assert np.all(counts == counts[0])
        assert all(len(set(row)) == len(row) for row in positions.tolist())
