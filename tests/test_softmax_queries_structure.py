"""What lies around attention is found: the input that is added, and normalisation before."""

import numpy as np
import pytest

import polyattn as pa
from polyattn import learn_from_queries
from polyattn.errors import InvalidInput
from polyattn.softmax.queries.normalised import Coordinates, Normalisation
from sublayers import layer_norm, planted, rms_norm, turned, visible

X = (
    np.random.default_rng(9).standard_normal((5, 7, 6))
    * np.array([0.01, 1, 3, 50, 1e3])[:, None, None]
)
NORMS = {"layer_norm": layer_norm, "rms_norm": rms_norm}


def sublayer(layer, kind=None, residual=False):
    def answers(X):
        return residual * X + layer(X if kind is None else NORMS[kind](X))

    return answers


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", [None, "layer_norm", "rms_norm"])
@pytest.mark.parametrize("mode", ["full", "causal"])
def test_structure_and_heads_are_found(kind, bias, residual, mode):
    layer = planted(bias=bias, mode=mode)
    oracle = sublayer(layer, kind, residual)
    found = learn_from_queries(oracle, 6, bias=bias)
    assert found.recovered, found.outcome
    assert (found.residual, found.normalisation, found.layer.mode) == (residual, kind, mode)
    assert kind is None or abs(found.eps - {"layer_norm": 1e-5, "rms_norm": 1e-6}[kind]) < 1e-16
    matched = pa.match_heads(found.layer, visible(layer, kind == "layer_norm"))
    assert max(matched.worst_attn, matched.worst_value) < 1e-9
    # Tokens of very different sizes, some of them so small that eps matters.
    np.testing.assert_allclose(found.predict(X), oracle(X), atol=1e-7)
    assert ("residual" in str(found)) == bool(residual or kind)


def test_results_keep_what_lies_around(tmp_path):
    found = learn_from_queries(sublayer(planted(), "rms_norm", residual=True), 6)
    path = tmp_path / "found.safetensors"
    pa.save(found, path)
    again = pa.load(path)
    assert (again.residual, again.normalisation, again.eps) == (True, "rms_norm", found.eps)
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
    assert "of tokens normalised by rms_norm, added to its input" in " ".join(str(again).split())
    one, batch = found.predict(X[0]), found.predict([X[0], X[1, :3]])
    np.testing.assert_allclose(one, found.predict(X)[0], atol=1e-12)
    np.testing.assert_allclose(batch[1], found.predict(X[1, :3]), atol=1e-12)
    last = learn_from_queries(sublayer(planted(), "rms_norm", residual=True), 6, mode="last")
    np.testing.assert_allclose(last.predict(X), found.predict(X)[:, -1], atol=1e-7)
    none = learn_from_queries(planted(), 6, max_queries=1)
    with pytest.raises(InvalidInput, match="no layer that predicts"):
        none.predict(X)


def test_the_command_line_predicts_the_whole_function(tmp_path):
    from click.testing import CliRunner

    from polyattn.cli.main import cli

    found = learn_from_queries(sublayer(planted(), "layer_norm", residual=True), 6)
    pa.save(found, tmp_path / "found.safetensors")
    np.save(tmp_path / "X.npy", X)
    names = [str(tmp_path / each) for each in ("found.safetensors", "X.npy", "Y.npy")]
    ran = CliRunner().invoke(cli, ["predict", names[0], names[1], "-o", names[2]])
    assert ran.exit_code == 0, ran.output
    np.testing.assert_allclose(np.load(names[2]), found.predict(X), atol=1e-12)


WRONG = {
    "no normalisation": (None, False, {"normalisation": "rms_norm"}, "not normalised"),
    "no normalisation, residual": (None, True, {"normalisation": "layer_norm"}, "not normalised"),
    "rms, not layer": ("rms_norm", False, {"normalisation": "layer_norm"}, "as in 'rms_norm'"),
    "layer, not rms": ("layer_norm", True, {"normalisation": "rms_norm"}, "as in 'layer_norm'"),
    "normalisation": ("rms_norm", True, {"normalisation": None}, "are normalised"),
    "residual": (None, True, {"residual": False}, "a residual connection"),
    "no residual": (None, False, {"residual": True}, "no residual connection"),
    "residual behind": ("rms_norm", True, {"residual": False}, "a residual connection"),
    "no residual behind": ("layer_norm", False, {"residual": True}, "no residual connection"),
    "no positions": (None, False, {"rotary": True}, "no rotary positions"),
    "no positions behind": ("rms_norm", True, {"rotary": True}, "no rotary positions"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_assumptions_are_named(name):
    kind, residual, given, words = WRONG[name]
    found = learn_from_queries(sublayer(planted(), kind, residual), 6, **given)
    assert found.outcome.name == "other_structure", found.outcome
    assert not found.outcome.ok
    assert words in found.outcome.sentence
    assert f"Leave {next(iter(given))} out" in found.outcome.next_step or "or leave it out" in (
        found.outcome.next_step
    )
    # What it advises helps.
    assert learn_from_queries(sublayer(planted(), kind, residual), 6).recovered


@pytest.mark.parametrize("kind", [None, "rms_norm"])
def test_right_assumptions_are_taken(kind):
    found = learn_from_queries(
        sublayer(planted(), kind, residual=True), 6, residual=True, normalisation=kind, rotary=None
    )
    assert found.recovered
    assert found.residual


@pytest.mark.parametrize("size", [1e-6, 1e5])
def test_attention_much_smaller_or_larger_than_its_input(size):
    layer = planted()
    for kind in (None, "rms_norm"):
        inner = sublayer(layer, kind)
        found = learn_from_queries(lambda X, inner=inner: X + size * inner(X), 6)
        assert found.residual
        assert found.normalisation == kind
        matched = pa.match_heads(
            found.layer, pa.SoftmaxAttention(layer.attn, size * layer.value, layer.mode)
        )
        assert max(matched.worst_attn, matched.worst_value) < 1e-6


OTHER = {
    "nothing but the input": (lambda X: X, "not_attention", "the token itself"),
    "normalised alone": (rms_norm, "not_attention", "There is no attention"),
    "another map beside": (
        lambda X: X @ planted().value[0] + planted()(rms_norm(X)),
        "not_attention",
        "another linear map",
    ),
    "no eps": (
        lambda X: planted()(rms_norm(np.where(X == 0, 1e-100, X), 0.0)),
        "not_recovered",
        "without an eps",
    ),
    "after attention": (lambda X: layer_norm(X + planted()(X)), "not_attention", "affine"),
    "before and after": (lambda X: rms_norm(planted()(rms_norm(X))), "not_attention", "affine"),
    "squashed": (lambda X: np.tanh(planted()(rms_norm(X))), "not_attention", "affine"),
    "another eps": (
        lambda X: planted()(X / (np.sqrt(np.mean(X**2, axis=2, keepdims=True)) + 1e-4)),
        "not_attention",
        "affine",
    ),
    "biases": (lambda X: planted(bias=True)(rms_norm(X)), "bias_needed", "biases"),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_things_are_never_recovered(name):
    oracle, outcome, words = OTHER[name]
    found = learn_from_queries(oracle, 6)
    assert found.outcome.name == outcome, found.outcome
    assert words in found.outcome.sentence
    assert found.outcome.next_step


def test_float32_answers_are_not_called_exact():
    for kind in (None, "rms_norm"):
        inner = sublayer(planted(), kind, residual=True)
        found = learn_from_queries(lambda X, inner=inner: inner(X).astype(np.float32), 6)
        assert found.residual
        assert found.normalisation == kind
        near = np.abs(found.predict(X[1:3]) - inner(X[1:3])).max()
        assert near < 1e-2
        assert not found.recovered or near < 2e-3


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_few_coordinates(kind):
    for d in (1, 2, 3):
        layer = planted(d, 1, 1)
        found = learn_from_queries(sublayer(layer, kind, residual=True), d)
        left = d - (kind == "layer_norm")
        assert found.recovered == (left >= 2), found.outcome
        if left < 2:
            assert found.outcome.name in ("not_recovered", "not_attention")


@pytest.mark.parametrize("queries", [1, 20, 60, 150, 230, 300, 380])
def test_a_budget_ends_every_phase(queries):
    for oracle in (sublayer(planted(), "layer_norm", residual=True), turned()):
        found = learn_from_queries(oracle, 6, max_queries=queries)
        assert found.outcome.name == "budget"
        assert found.n_queries <= queries
        assert found.layer is None or found.layer.n_dims == 6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"residual": "yes"}, "residual must be"),
        ({"normalisation": "batch_norm"}, "normalisation must be one of"),
        ({"rotary": 10000.0}, "rotary must be"),
    ],
    ids=str,
)
def test_misuse_is_named(given, words):
    with pytest.raises(InvalidInput, match=words):
        learn_from_queries(planted(), 6, **given)


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_normalisation_is_inverted(kind):
    normalise = Normalisation(kind, 1e-5, 6)
    tokens = X.reshape(-1, 6)
    np.testing.assert_allclose(normalise(tokens), NORMS[kind](tokens[None], 1e-5)[0], rtol=1e-12)
    inside = Coordinates(normalise)
    U = np.random.default_rng(0).standard_normal((20, inside.n_dims))
    U *= 0.99 * inside.largest / np.linalg.norm(U, axis=1).max()
    seen = normalise(inside.tokens(U))
    np.testing.assert_allclose(seen, U @ normalise.basis.T * inside.unit, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        normalise.basis.T @ normalise.basis, np.eye(inside.n_dims), atol=1e-12
    )
    with pytest.raises(ValueError, match="no normalised form"):
        inside.tokens(2 * U)
    huge = normalise(np.full((1, 6), 1e200) * np.arange(6))
    assert np.all(np.isfinite(huge))
