"""audit: layers of every kind against an optimum that the solvers had no part in."""

import json
from importlib import import_module

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.exceptions import NotFittedError

import polyattn as pa
from audit_tasks import NOISE, ragged, task
from polyattn.cli.main import cli
from polyattn.errors import InvalidInput, InvalidType
from polyattn.report import make_page
from polyattn.sequences import MODES


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_true_layer_is_near_the_optimum(mode, bias):
    X, Y, layer = task(mode, bias=bias, n_sequences=200)
    report = pa.audit(layer, X, Y)
    best = pa.fit(X, Y, mode, bias=bias)
    assert report.risk == pytest.approx(np.mean(np.sum((Y - layer(X)) ** 2, axis=-1)))
    assert report.optimal_risk == pytest.approx(best.risk, rel=1e-9)
    assert report.gap == report.risk - report.optimal_risk > 0
    assert report.distance == pytest.approx(np.linalg.norm(layer.coef - best.coef), rel=1e-8)
    assert report.certificate.verdict == "identifiable"
    assert report.certificate.lambda_min == pa.certify(X, mode, bias=bias).lambda_min
    assert report.distance <= report.implied.distance < 10 * report.distance
    assert report.consistent


@pytest.mark.parametrize("mode", MODES)
def test_the_bound_per_input_holds(mode):
    X, Y, layer = task(mode)
    new = np.random.default_rng(9).standard_normal((20, 5, 3))
    report = pa.audit(layer, X, Y)
    away = np.linalg.norm(layer(new) - pa.fit(X, Y, mode).predict(new), axis=-1)
    bound = report.implied.bound(new)
    assert bound.shape == away.shape
    assert np.all(away <= 0.5 * bound)
    assert np.max(away / bound) > 0.05


def test_an_exact_layer_is_optimal_up_to_rounding():
    X, _, layer = task()
    report = pa.audit(layer, X, layer(X))
    assert report.gap <= report.rounding < 1e-20
    assert report.distance < 1e-12
    assert report.consistent
    assert "optimal up to rounding" in report.sentence


def test_an_optimum_is_never_better_than_the_optimum():
    for seed in range(5):
        X, Y, _ = task(seed=seed)
        report = pa.audit(pa.fit(X, Y, "causal"), X, Y)
        assert 0.0 <= report.gap <= report.rounding
        assert report.consistent


def test_the_smallest_integers_round_as_floats_do():
    """-128 of int8 has no magnitude of its own type, and rounding is relative to magnitudes."""
    X = np.random.default_rng(0).choice([-128, 3, 7], size=(60, 4, 2)).astype(np.int8)
    layer = pa.data.random_layer(2, mode="last", random_state=0)
    small, floats = (pa.audit(layer, tokens, layer(X)) for tokens in (X, X.astype(float)))
    assert small.rounding == floats.rounding


def test_an_unrelated_layer_is_far_away():
    """Negative control."""
    X, Y, layer = task()
    own, other = pa.audit(layer, X, Y), pa.audit(task(seed=7)[2], X, Y)
    assert other.gap > 1000 * own.gap
    assert other.distance > 10 * own.distance
    assert other.consistent
    assert "It could be better by" in other.sentence


def test_outputs_that_are_not_those_of_the_coefficients_are_noticed():
    """Negative control of ``consistent``."""
    X, Y, _ = task()
    best = pa.fit(X, Y, "causal").layer

    class Liar(pa.LinearAttention):
        def __call__(self, tokens):
            return best(tokens)

    other = task(seed=7)[2]
    report = pa.audit(Liar(other.attn, other.value, "causal"), X, Y)
    assert report.gap <= report.rounding
    assert report.distance > report.implied.distance
    assert not report.consistent
    assert "breaks the bound" in report.sentence
    assert report.outcome.name == "inconsistent"
    assert not report.outcome.ok
    assert pa.audit(Liar(best.attn, best.value, "causal"), X, Y).consistent


@pytest.mark.parametrize("seed", range(12))
def test_awkward_data_raise_no_false_alarm(seed):
    """Coordinates of different units, nearly dependent ones, weights, all levels of noise."""
    rng = np.random.default_rng(seed)
    mode, bias, noise = MODES[seed % 3], bool(rng.integers(2)), (0.0, 1e-12, 1e-6, 0.1)[seed % 4]
    X = rng.standard_normal((rng.integers(5, 60), 4, 3)) * 10.0 ** rng.uniform(-3, 3, 3)
    if seed % 2:
        X[..., 2] = X[..., 0] + 10.0 ** rng.uniform(-6, 0) * X[..., 2]
    width = 3 + bias
    layer = pa.LinearAttention(
        rng.standard_normal((2, width, width)), rng.standard_normal((2, width, 2)), mode, bias
    )
    Y = layer(X)
    Y = Y + noise * np.std(Y) * rng.standard_normal(Y.shape)
    weights = rng.uniform(size=len(X)) if seed % 3 else None
    for audited in (layer, pa.fit(X, Y, mode, bias=bias, sample_weight=weights)):
        report = pa.audit(audited, X, Y, sample_weight=weights)
        assert report.gap >= 0.0
        assert report.consistent


def test_all_forms_of_a_layer_give_the_same_audit():
    X, Y, _ = task()
    fitted = pa.fit(X, Y, "causal", ridge=5.0)
    estimator = pa.LinearAttentionRegressor("causal", ridge=5.0).fit(X, Y)
    reports = [pa.audit(form, X, Y) for form in (fitted, fitted.layer, estimator)]
    for report in reports:
        assert report.risk == pytest.approx(fitted.risk)
        assert report.gap == pytest.approx(reports[0].gap, rel=1e-6)
        assert report.distance == pytest.approx(reports[0].distance, rel=1e-6)
    assert reports[0].gap > 0


@pytest.mark.parametrize("mode", MODES)
def test_forms_of_sequences_do_not_matter(mode):
    X, Y = ragged(mode)
    layer = pa.data.random_layer(3, 2, 2, mode, random_state=4)
    report, packed = (pa.audit(layer, form, Y) for form in (X, pa.SequenceBatch.from_sequences(X)))
    assert report.risk == packed.risk
    assert report.optimal_risk == pytest.approx(pa.fit(X, Y, mode).risk, rel=1e-9)


def test_pieces_of_the_data_do_not_matter(monkeypatch):
    X, Y, layer = task()
    whole = pa.audit(layer, X, Y)
    monkeypatch.setattr(import_module("polyattn.auditing.audit"), "CHUNK_TOKENS", 17)
    assert pa.audit(layer, X, Y).risk == pytest.approx(whole.risk, rel=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_weights_count_as_repetitions(mode):
    X, Y, layer = task(mode, 80)
    times = np.random.default_rng(2).integers(0, 3, len(X))
    weighted = pa.audit(layer, X, Y, sample_weight=times)
    repeated = pa.audit(layer, np.repeat(X, times, axis=0), np.repeat(Y, times, axis=0))
    for name in ("risk", "optimal_risk", "gap", "distance"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name), rel=1e-7)
    assert weighted.certificate.verdict == repeated.certificate.verdict == "identifiable"
    assert weighted.implied.distance == pytest.approx(repeated.implied.distance, rel=1e-6)
    assert weighted.consistent


def test_data_that_do_not_determine_the_layer_say_so():
    X, Y, layer = task("last", 10)
    report = pa.audit(layer, X, Y)
    assert report.certificate.verdict == "not_identifiable"
    assert report.implied.distance == np.inf
    assert np.all(np.isinf(report.implied.bound(X)))
    assert report.optimal_risk <= report.rounding
    assert 0.01 < report.distance < np.linalg.norm(layer.coef - pa.fit(X, Y).coef)
    assert report.consistent
    assert "do not determine the rest of the layer" in report.sentence
    few = pa.audit(layer, X, Y, sample_weight=np.ones(len(X)))
    assert few.certificate.verdict == "not_identifiable"


def test_a_domain_is_certified_on_its_own():
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], size=(200, 4, 3))
    layer = pa.data.random_layer(3, 2, mode="last")
    Y = layer(X) + NOISE * rng.standard_normal((200, 2))
    for weights in (None, np.ones(200)):
        report = pa.audit(layer, X, Y, domain="boolean", sample_weight=weights)
        assert report.certificate.verdict == "identifiable"
        # Coefficients that Boolean tokens do not show are not bounded.
        assert report.implied.distance == np.inf
        assert report.consistent
        away = np.linalg.norm(layer(X) - pa.fit(X, Y).predict(X), axis=-1)
        assert np.all(away <= 0.5 * report.implied.bound(X))
        with pytest.raises(InvalidInput, match="boolean"):
            pa.audit(layer, 2 * X, Y, domain="boolean", sample_weight=weights)


def test_wide_tokens_are_audited_in_little_memory():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4, 64)), rng.standard_normal((60, 1))
    layer = pa.data.random_layer(64, 1, mode="last")
    report = pa.audit(layer, X, Y)
    assert report.certificate.verdict == "not_identifiable"
    assert report.optimal_risk <= report.rounding
    assert report.consistent


def test_misuse_is_named():
    X, Y, layer = task("causal")
    bad = Y.copy()
    bad[0, 0, 0] = np.nan
    for call, message in [
        (lambda: pa.audit(layer, X[..., :2], Y), "tokens of 3 coordinates; got 2"),
        (lambda: pa.audit(layer, X, Y[..., :1]), "2 outputs; got 1"),
        (lambda: pa.audit(layer, X, Y[:, 0]), "sequence 0 has 5 tokens in X but 2 targets"),
        (lambda: pa.audit(task("last")[2], X, Y), "one target per sequence"),
        (lambda: pa.audit(layer, X, bad), "NaN or infinity in 1"),
        (lambda: pa.audit(layer, X, Y, mode="last"), "layer has mode 'causal'"),
        (lambda: pa.audit(layer, X, Y, bias=True), "layer has bias False"),
        (lambda: pa.audit(layer.__call__, X, Y, mode="first"), "mode must be one of"),
        (lambda: pa.audit(layer, X, Y, domain="complex"), "domain must be one of"),
        (lambda: pa.audit(layer, X, Y, sample_weight=np.zeros(len(X))), "zero everywhere"),
        (lambda: pa.audit(layer, X, Y, sample_weight=[1.0]), "one weight per sequence"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            call()


def test_what_is_no_layer_is_named():
    X, Y, _ = task("last")
    with pytest.raises(InvalidType, match=r"layer must be a LinearAttention.*got int"):
        pa.audit(3, X, Y)
    with pytest.raises(InvalidType, match="bias must be True or False"):
        pa.audit(lambda x: x, X, Y, bias=1)
    with pytest.raises(NotFittedError):
        pa.audit(pa.LinearAttentionRegressor(), X, Y)
    classifier = pa.LinearAttentionClassifier(ridge=1.0).fit(X, Y[:, 0] > 0)
    with pytest.raises(InvalidType, match="takes a regressor"):
        pa.audit(classifier, X, Y)
    signs = np.where(Y[:, 0] > 0, 1.0, -1.0)
    assert pa.audit(classifier.result_, X, signs).gap > 0


def one_long_sequence(factor):
    """Noisy data in which the tokens of one sequence, and its target, are far larger."""
    rng = np.random.default_rng(7)
    layer = pa.data.random_layer(3, mode="last", random_state=1)
    X = rng.standard_normal((200, 5, 3))
    X[0] *= factor
    clean = layer(X)
    noise = np.where(np.arange(200)[:, None] > 0, rng.standard_normal(clean.shape), 0.0)
    return X, clean + noise, layer


def test_rounding_that_hides_the_risk_leaves_it_undecided(tmp_path):
    X, Y, layer = one_long_sequence(1e6)
    found = pa.audit(layer, X, Y)
    assert found.gap <= found.rounding
    assert found.rounding > max(found.risk, found.optimal_risk)
    assert found.outcome.name == "undecided"
    assert "hides whether it is optimal" in found.sentence
    assert "optimal up to rounding" not in found.sentence
    page = make_page(found)
    assert "undecided" in page.sections[0].body
    assert "doubt" in page.sections[0].body
    pa.save(layer, tmp_path / "layer.safetensors")
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    files = [str(tmp_path / name) for name in ("layer.safetensors", "data.npz")]
    shown = CliRunner().invoke(cli, ["audit", *files])
    assert (
        shown.exit_code
        == {"identifiable": 4, "undecided": 4, "not_identifiable": 3}[found.certificate.verdict]
    )
    assert "undecided" in shown.output
    printed = CliRunner().invoke(cli, ["audit", *files, "--json"])
    assert json.loads(printed.stdout)["outcome"]["name"] == "undecided"


def test_directions_too_small_to_be_solved_for_leave_the_risk_undecided():
    """The best that was found ignores them, so to be as good as that is not to be optimal."""
    X, Y, _ = one_long_sequence(1e6)
    Y[0] = 1.0
    found = pa.audit(pa.fit(X, Y), X, Y)
    assert found.certificate.identifiable
    least = pa.audit(pa.fit(X[1:], Y[1:]), X[1:], Y[1:]).risk
    assert found.optimal_risk > 1.2 * least + found.rounding
    assert found.outcome.name == "undecided"
    assert "that was found" in found.sentence


def test_rounding_that_hides_nothing_leaves_the_outcome_decided():
    """Negative control: the same data with a sequence of ordinary size, and an exact layer."""
    X, Y, layer = one_long_sequence(1.0)
    assert pa.audit(layer, X, Y).outcome.name == "improvable"
    assert pa.audit(pa.fit(X, Y), X, Y).outcome.name == "optimal"
    assert pa.audit(layer, X, layer(X)).outcome.name == "optimal"
    long, _, _ = one_long_sequence(1e6)
    assert pa.audit(layer, long, layer(long)).outcome.name == "optimal"
    assert pa.audit(lambda _: Y, X, Y, mode="last").outcome.name == "better"


def test_the_distance_is_said_beside_the_size_of_the_coefficients():
    X, Y, layer = task()
    units = 2.0**-15
    large = pa.audit(pa.fit(X * units, Y, "causal"), X * units, Y)
    assert large.optimal_norm > 1e12
    assert large.relative_distance == large.distance / large.optimal_norm < 1e-10
    assert f"{large.relative_distance:.2g} times its norm" in large.sentence
    plain = pa.audit(layer, X, Y)
    assert pa.audit(layer.__call__, X, Y, mode="causal").relative_distance is None
    assert plain.optimal_norm == pytest.approx(np.linalg.norm(pa.fit(X, Y, "causal").coef))
