"""polyattn certify and polyattn audit: verdicts as exit codes, certificates made and checked."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from polyattn.certify.document import from_document, to_document
from polyattn.cli.main import cli

RNG = np.random.default_rng(0)
GAUSSIAN = RNG.standard_normal((60, 4, 3))
BOOLEAN = RNG.choice([-1, 1], (60, 4, 3))
STEEP = GAUSSIAN @ [[1, 0, 1], [0, 1, 0], [0, 0, 1e-6]]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a verb beside three data files; returns click's result."""
    monkeypatch.chdir(tmp_path)
    np.savez("gaussian.npz", X=GAUSSIAN, Y=GAUSSIAN[:, -1])
    np.save("boolean.npy", BOOLEAN)
    np.savez("steep.npz", X=STEEP)

    def call(*arguments, code=0):
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return call


def refused(result, *words):
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in result.stderr


# certify


def test_verdicts_are_exit_codes(run):
    assert run("certify", "gaussian.npz").stdout.startswith("Identifiable: the data determine")
    assert "do not determine" in run("certify", "boolean.npy", code=3).stdout
    assert "Undecided" in run("certify", "steep.npz", code=4).stdout


def test_text_for_people(run):
    result = run("certify", "gaussian.npz", "--save", "certificate.json")
    certificate = pa.certify(GAUSSIAN)
    assert result.stdout.splitlines()[0] == certificate.sentence
    assert result.stderr == ""
    words = ("18", "smallest eigenvalue", "gram", "60 sequences", certificate.digest)
    for word in (*words, "certificate.json"):
        assert word in result.stdout
    assert pa.verify(pa.load("certificate.json"), GAUSSIAN)


@pytest.mark.parametrize(
    ("options", "arguments", "code"),
    [
        ([], {}, 3),
        (["--domain", "boolean"], {"domain": "boolean"}, 0),
        (["--domain", "boolean", "--lengths", "4"], {"domain": pa.domains.Boolean(4)}, 0),
        (["--domain", "boolean", "--lengths", "2:9"], {"domain": pa.domains.Boolean((2, 9))}, 0),
        (["--domain", "boolean", "--lengths", "2:"], {"domain": pa.domains.Boolean((2, None))}, 0),
        (["--mode", "causal", "--bias"], {"mode": "causal", "bias": True}, 3),
        (["--method", "float"], {"method": "float"}, 3),
    ],
)
def test_json_is_the_document_and_options_are_those_of_the_library(run, options, arguments, code):
    result = run("certify", "boolean.npy", *options, "--json", code=code)
    document = json.loads(result.stdout)
    assert document == to_document(pa.certify(BOOLEAN, **arguments))
    # What is printed can be kept as a file.
    Path("printed.json").write_text(result.stdout)
    assert pa.verify(pa.load("printed.json"), BOOLEAN)


def test_witness_and_next_data(run):
    document = json.loads(
        run("certify", "boolean.npy", "--witness", "--next", "--json", code=3).stdout
    )
    witness, more = document["witness"], document["next_data"]
    assert np.abs(np.subtract(witness["output_a"], witness["output_b"])).max() > 0.5
    assert witness["training_disagreement"] < 1e-10
    assert more["complete"]
    completed = [*BOOLEAN, *map(np.array, more["sequences"])]
    assert pa.certify(completed).identifiable
    text = run("certify", "boolean.npy", "--witness", "--next", code=3).stdout
    for words in ("Two layers", "output b", "the 6 proposed sequences", "sequences to collect"):
        assert words in text
    # Where there is nothing to show, nothing is shown.
    assert "Two layers" not in run("certify", "gaussian.npz", "--witness", "--next").stdout


def test_saved_statistics_are_certified(run):
    pa.Moments(3).update(GAUSSIAN).save("moments.safetensors")
    pa.TriangularFactor(3, mode="causal").update(GAUSSIAN).save("factor.safetensors")
    pa.save(pa.data.random_layer(3), "layer.safetensors")
    for path in ("moments.safetensors", "factor.safetensors"):
        assert json.loads(run("certify", path, "--json").stdout)["rank"] == 18
    refused(run("certify", "moments.safetensors", "--bias", code=1), "leave --bias out")
    refused(run("certify", "moments.safetensors", "--method", "exact", code=1), "sequences")
    refused(run("certify", "layer.safetensors", code=1), "LinearAttention")


def test_certificates_are_checked(run):
    run("certify", "boolean.npy", "--domain", "boolean", "--save", "good.json")
    result = run("certify", "boolean.npy", "--certificate", "good.json")
    assert "is true of these data" in result.stdout
    checked = json.loads(run("certify", "boolean.npy", "--check", "good.json", "--json").stdout)
    assert checked == {
        "verified": True, "objections": [], "certificate": "good.json", "verdict": "identifiable",
    }  # fmt: skip
    other = run("certify", "gaussian.npz", "--check", "good.json", code=1)
    assert "not those that were certified" in other.stdout
    # A liar who seals the document again.
    document = json.loads(Path("good.json").read_text())
    certificate = from_document(document)
    for field, value in {"rank": 11, "lambda_max": 1.0, "prime": 9}.items():
        object.__setattr__(certificate, field, value)
    pa.save(certificate, "lie.json")
    found = json.loads(
        run("certify", "boolean.npy", "--check", "lie.json", "--json", code=1).stdout
    )
    assert not found["verified"]
    assert found["objections"]
    document["rank"] = 11
    Path("edited.json").write_text(json.dumps(document))
    refused(run("certify", "boolean.npy", "--check", "edited.json", code=1), "seal")
    refused(run("certify", "boolean.npy", "--check", "missing.json", code=1), "no file")


def test_show_a_certificate(run):
    run("certify", "boolean.npy", "--save", "certificate.json", code=3)
    certificate = pa.load("certificate.json")
    text = run("show", "certificate.json").stdout
    assert text.splitlines()[0] == certificate.sentence
    assert "rank 12 of 18" in text
    assert json.loads(run("show", "certificate.json", "--json").stdout) == to_document(certificate)


def test_mistakes_are_one_clear_line(run):
    refused(run("certify", "missing.npz", code=1), "no file")
    refused(run("certify", "gaussian.npz", "--domain", "boolean", code=1), "does not belong")
    refused(run("certify", "gaussian.npz", "--lengths", "0", code=1), "lengths")
    refused(run("certify", "gaussian.npz", "--lengths", "5:", code=1), "4 tokens")
    refused(run("certify", "gaussian.npz", "--save", "gone/c.json", code=1), "gone")
    both = run("certify", "gaussian.npz", "--check", "c.json", "--bias", "--next", code=1)
    refused(both, "leave --bias, --next out")
    run("certify", "gaussian.npz", "--lengths", "two", code=2)
    run("certify", "gaussian.npz", "--domain", "no_such_domain", code=2)
    run("certify", code=2)


def test_progress_is_shown_and_json_stays_alone(run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = run("certify", "gaussian.npz", "--save", "c.json", "--json")
    assert json.loads(result.stdout)["rank"] == 18
    assert "certifying" in result.stderr
    checked = run("certify", "gaussian.npz", "--check", "c.json", "--json")
    assert json.loads(checked.stdout)["verified"]
    assert "checking" in checked.stderr


# audit


@pytest.fixture
def task():
    return pa.data.planted(200, 6, 3, n_heads=1, mode="last", noise=0.1, random_state=0)


def test_audit_of_a_layer_and_of_the_optimum(run, task):
    np.savez("data.npz", X=task.X, Y=task.Y)
    pa.save(task.layer, "layer.safetensors")
    run("fit", "data.npz", "-o", "best.safetensors")
    found = json.loads(run("audit", "layer.safetensors", "data.npz", "--json").stdout)
    expected = pa.audit(task.layer, task.X, task.Y)
    for name in ("risk", "optimal_risk", "gap", "distance", "consistent"):
        assert found[name] == getattr(expected, name)
    assert found["outcome"] == expected.outcome.to_dict()
    assert found["gap"] > 0
    assert found["implied_distance"] >= found["distance"]
    assert pa.verify(from_document(found["certificate"]), task.X)
    best = json.loads(run("audit", "best.safetensors", "data.npz", "--json").stdout)
    assert best["gap"] < 1e-12
    text = run("audit", "layer.safetensors", "data.npz").stdout
    assert text.splitlines()[0] == expected.sentence.replace("pa.fit", "polyattn fit")
    for words in ("optimal risk", "consistent", "rank 18 of 18"):
        assert words in text


def test_audit_exits_with_the_verdict(run, task):
    np.save("X.npy", task.X[:10])
    np.save("Y.npy", task.Y[:10])
    pa.save(task.layer, "layer.safetensors")
    found = json.loads(
        run("audit", "layer.safetensors", "X.npy", "--targets", "Y.npy", "--json", code=3).stdout
    )
    assert found["certificate"]["method"] == "count"
    assert found["implied_distance"] is None
    symbols = np.eye(3)[RNG.integers(3, size=(80, 4))]
    np.savez("symbols.npz", X=symbols, Y=task.layer(symbols))
    run("audit", "layer.safetensors", "symbols.npz", code=3)
    run("audit", "layer.safetensors", "symbols.npz", "--domain", "one_hot")


def test_audit_refuses_what_is_no_layer(run, task):
    np.savez("data.npz", X=task.X, Y=task.Y)
    run("certify", "data.npz", "--save", "certificate.json")
    refused(run("audit", "certificate.json", "data.npz", code=1), "Certificate", "MODEL")
    refused(run("audit", "missing", "data.npz", code=1), "no file")
    pa.save(pa.data.random_layer(2), "narrow.safetensors")
    refused(run("audit", "narrow.safetensors", "data.npz", code=1), "2")


def test_help_names_the_exit_codes(run):
    text = run("--help").stdout
    assert "certify" in text
    assert "audit" in text
    for verb in ((), ("certify",), ("audit",)):
        assert " 3 " in " ".join(run(*verb, "--help").stdout.split())
