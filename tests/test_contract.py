"""What holds of everything: results, parameters and verbs, from tables and signatures.

Every public result has an outcome, a text, plain data, a file, a card and a page; every public
parameter that is given something absurd is named in the error; every verb prints what the library
call answers.
"""

import inspect
import json
import re
from functools import cache

import numpy as np
import pytest

import forged_files as forged
import polyattn as pa
from polyattn.errors import PolyattnError
from read_page import page_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4, 2))
LAYER = pa.data.random_layer(2, 2, mode="last")
Y = LAYER(X) + 0.1 * RNG.standard_normal((60, 2))
SOFT = pa.data.planted_softmax(60, 3, 2, n_heads=1, random_state=0)
SOFTMAX = pa.data.random_softmax_layer(3, n_heads=2, random_state=1)
WIDE = np.random.default_rng(2).standard_normal((60, 4, 3))
PROGRAM = pa.programs.associative_memory(2, 2)
TRACES = pa.programs.traces(PROGRAM, 9)


def of_files(names):
    """Things that files hold, made as the tests of files make them."""
    return {name: forged.THINGS[name] for name in names.split(", ")}


RESULTS = of_files(
    "fit, fit without heads, fit of a form, fit of few rows, fit by log-loss, fit of ids, curve, "
    "forecast, certificate, certificate of few rows, queries, few queries, audit, head audit, "
    "linearised, learned softmax, rules, coefficients, certified, fit of one head, "
    "curve to the peak, diverging forecast, certificate of ids, audit of the optimum, "
    "audit of a black box, audit of few rows, head audit of few rows, nothing held out"
)

# Described, but nothing happened to them.
THINGS = of_files(
    "layer, layer of a form, softmax, rotary, linearised layer, circuits, moments, factor, program"
)
ESTIMATORS = of_files("one column, softmax regressor, booleans, text, scaler, imputer")

DESCRIBED = RESULTS | THINGS | ESTIMATORS


@cache
def made(name):
    """Each thing, made once; none of these tests changes it."""
    return DESCRIBED[name]()


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_says_what_was_found_and_what_to_do(name):
    result = made(name)
    outcome = result.outcome
    assert re.fullmatch(r"[a-z_]+", outcome.name)
    assert isinstance(outcome.ok, bool)
    assert outcome.to_dict().items() >= {"name": outcome.name, "ok": outcome.ok}.items()
    for sentence in filter(None, (outcome.sentence, outcome.next_step)):
        assert sentence.strip() == sentence
        assert sentence.endswith(".")
        assert_readable(sentence)
    assert 20 <= len(outcome.sentence) <= 240
    assert re.search(r"\d", outcome.sentence), "no figure"
    # Whoever is not fine is told what to do.
    assert outcome.ok or outcome.next_step
    said = " ".join(str(result).split())
    assert " ".join(outcome.sentence.split()) in said
    assert result.to_dict()["outcome"] == outcome.to_dict()
    assert outcome.sentence in result.sentence


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_thing_has_a_readable_text_and_a_card(name):
    assert_readable(str(made(name)))
    card = made(name)._repr_html_()
    assert type(made(name)).__name__ in card
    # The cards of estimators are scikit-learn's.
    assert name in ESTIMATORS or "<script" not in card


def assert_readable(text):
    """No dumped arrays or objects, and no number with more digits than one reads."""
    for unread in ("array(", "[[", " object at 0x", "nan", "None,"):
        assert unread not in text, text
    assert not re.search(r"\d\.\d{10}", text), text


@pytest.mark.parametrize("name", RESULTS | THINGS)
def test_plain_data_are_json_and_arrays_are_whole(name):
    thing = made(name)
    content = thing.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert len(json.dumps(content)) < 5000
    assert isinstance(content["kind"], str)
    whole = thing.to_full_dict()
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole
    for field, array in thing.arrays().items():
        np.testing.assert_array_equal(np.array(whole[field]), array)


@pytest.mark.parametrize("name", [*RESULTS, "layer of a form", "softmax", "circuits", "text"])
def test_a_page_stands_alone_and_shows_the_sentence(name, tmp_path):
    thing = made(name)
    page = page_of(thing, tmp_path / "page.html")
    assert page.html.lower().startswith("<!doctype html>")
    assert re.search(r"<title>[^<]+</title>", page.html)
    assert page.requests() == []
    if name in RESULTS:
        assert "".join(thing.outcome.sentence.split()) in "".join(page.text.split())


class Absurd:
    """What no parameter takes."""

    def __repr__(self):
        return "Absurd()"


P = pa.programs
FIT, CERTIFICATE, OPEN = pa.fit(X, Y), pa.certify(X), pa.certify(X[:3])
SMALL = {"n_sequences": 5, "n_tokens": 3, "n_dims": 2}
HEAD = {"attn": np.eye(2), "value": np.eye(2)}
DFA = P.machines.parity()
WITH_BIAS = pa.data.random_softmax_layer(4, n_heads=2, rank=2, bias=True)
BERT = pa.interop.to_weights(WITH_BIAS, "bert")
PROJECTED = dict(zip(["W_Q", "W_K", "W_V", "W_O"], np.ones((4, 1, 2, 2)), strict=True))

#: A good call of every public function and constructor that computes.
CALLS = {
    "fit": (pa.fit, {"X": X, "Y": Y}),
    "FitResult.predict": (FIT.predict, {"X": X}),
    "FitResult.generalisation": (FIT.generalisation, {}),
    "certify": (pa.certify, {"X": X}),
    "verify": (pa.verify, {"certificate": CERTIFICATE, "X": X}),
    "Certificate.bound": (CERTIFICATE.bound, {"X": X, "risk": 1.0, "optimal_risk": 0.5}),
    "Certificate.bound by the noise": (
        CERTIFICATE.bound,
        {"X": X, "risk": 1.0, "noise": 0.5, "n_outputs": 2},
    ),
    "Certificate.bound by a bound of the noise": (
        CERTIFICATE.bound,
        {"X": X, "risk": 1.0, "noise_power": 0.5, "noise_bound": 1.0},
    ),
    "Certificate.next_data": (CERTIFICATE.next_data, {}),
    "Certificate.witness": (OPEN.witness, {}),
    "audit": (pa.audit, {"layer": LAYER, "X": X, "Y": Y}),
    "learning_curve": (pa.learning_curve, {"X": X, "Y": Y}),
    "forecast": (pa.forecast, {"result": LAYER, "X": X[:2] / 9, "steps": 3}),
    "linearise": (pa.linearise, {"attention": SOFT.layer, "X": SOFT.X, "n_features": 3}),
    "learn_softmax": (pa.learn_softmax, {"X": SOFT.X, "Y": SOFT.Y}),
    "learn_from_queries": (pa.learn_from_queries, {"oracle": SOFT.layer, "n_dims": 2}),
    "sample_size": (pa.sample_size, {"n_dims": 3, "error": 0.1}),
    "same_function": (pa.same_function, {"layer_a": LAYER, "layer_b": LAYER}),
    "coefficient_distance": (pa.coefficient_distance, {"layer_a": LAYER, "layer_b": LAYER}),
    "match_heads": (pa.match_heads, {"found": LAYER, "planted": LAYER}),
    "canonical": (pa.canonical, {"layer": LAYER}),
    "Form": (pa.Form, {}),
    "LinearAttention": (pa.LinearAttention, HEAD),
    "SoftmaxAttention": (pa.SoftmaxAttention, HEAD),
    "Moments": (pa.Moments, {"n_dims": 2}),
    "Moments.update": (pa.Moments(2, 2).update, {"X": X, "Y": Y}),
    "TriangularFactor": (pa.TriangularFactor, {"n_dims": 2}),
    "scan": (pa.scan, {"data": X, "Y": Y}),
    "save": (pa.save, {"obj": LAYER, "path": "never.safetensors"}),
    "load": (pa.load, {"path": "never.safetensors"}),
    "SequenceBatch": (pa.SequenceBatch, {"values": X[0], "offsets": [0, 4]}),
    "from_ids": (pa.SequenceBatch.from_ids, {"ids": [[0, 1]], "n_symbols": 2}),
    "from_padded": (pa.SequenceBatch.from_padded, {"array": X, "lengths": np.full(60, 3)}),
    "from_sequences": (pa.SequenceBatch.from_sequences, {"sequences": list(X)}),
    "maps.polynomial": (pa.maps.polynomial, {"degree": 2}),
    "maps.random_fourier": (pa.maps.random_fourier, {"n_features": 3, "scale": 1.0}),
    "data.planted": (pa.data.planted, SMALL),
    "data.planted_softmax": (pa.data.planted_softmax, SMALL),
    "data.random_sequences": (pa.data.random_sequences, SMALL),
    "data.boolean_sequences": (pa.data.boolean_sequences, SMALL),
    "data.random_layer": (pa.data.random_layer, {"n_dims": 2}),
    "data.random_softmax_layer": (pa.data.random_softmax_layer, {"n_dims": 2}),
    "data.hard_softmax_layer": (pa.data.hard_softmax_layer, {"family": "close", "n_dims": 4}),
    "data.lorenz": (pa.data.lorenz, {"n_tokens": 5}),
    "data.associative_memory": (pa.data.associative_memory, {"n_sequences": 5, "n_keys": 2}),
    "data.in_context_regression": (
        pa.data.in_context_regression,
        {"n_sequences": 5, "n_examples": 3, "covariance": np.eye(2)},
    ),
    "data.proportional_regression": (
        pa.data.proportional_regression,
        {"n_dims": 3, "tau": 1.0, "alpha": 1.0},
    ),
    "data.automaton_traces": (pa.data.automaton_traces, {"n_traces": 2}),
    "data.turing_traces": (pa.data.turing_traces, {"n_traces": 2}),
    "data.with_wrong_labels": (pa.data.with_wrong_labels, {"clean": TRACES}),
    "programs.associative_memory": (P.associative_memory, {"n_keys": 2, "n_values": 2}),
    "programs.universal_dfa": (P.universal_dfa, {"n_states": 2, "n_letters": 2, "max_length": 2}),
    "programs.universal_turing_machine": (
        P.universal_turing_machine,
        {"n_states": 2, "n_letters": 2, "n_cells": 3},
    ),
    "programs.tape_rewriting_turing_machine": (
        P.tape_rewriting_turing_machine,
        {"n_states": 2, "n_letters": 2, "n_cells": 3, "n_steps": 2},
    ),
    "programs.fixed_dfa": (P.fixed_dfa, {"dfa": DFA, "max_length": 3}),
    "programs.compile": (P.compile, {"program": PROGRAM}),
    "programs.quantise": (P.quantise, {"compiled": P.compile(PROGRAM), "bits": 3}),
    "programs.learn": (P.learn, {"schema": PROGRAM.schema, "traces": TRACES}),
    "programs.traces": (P.traces, {"program": PROGRAM, "n_traces": 2}),
    "programs.symbols": (P.symbols, {"name": "a", "size": 2}),
    "programs.line": (P.line, {"name": "a", "size": 2}),
    "programs.circle": (P.circle, {"name": "a", "size": 2}),
    "interop.circuits": (pa.interop.circuits, {"layers": SOFTMAX}),
    "interop.to_torch": (pa.interop.to_torch, {"layer": LAYER}),
    "interop.from_torch": (pa.interop.from_torch, {"module": pa.interop.to_torch(LAYER)}),
    "interop.to_onnx": (pa.interop.to_onnx, {"layer": LAYER, "path": "never.onnx"}),
    "interop.to_multihead": (pa.interop.to_multihead, {"layer": SOFT.layer}),
    "interop.to_projections": (pa.interop.to_projections, {"layer": SOFT.layer}),
    "interop.from_projections": (pa.interop.from_projections, {**PROJECTED, "kind": "softmax"}),
    "interop.to_weights": (pa.interop.to_weights, {"layer": WITH_BIAS, "layout": "bert"}),
    "interop.from_weights": (pa.interop.from_weights, {"source": BERT, "n_heads": 2}),
    "interop.read_projections": (pa.interop.read_projections, {"source": BERT, "n_heads": 2}),
}

# What cannot stand beside the arguments of the good call, or is used in messages alone.
OF_NOISE = ("noise", "noise_power", "noise_bound", "n_outputs", "confidence")
EXCLUDED = {
    **dict.fromkeys(("SequenceBatch", "from_ids", "from_padded", "from_sequences"), ("name",)),
    "Certificate.bound": OF_NOISE,
    "Certificate.bound by the noise": ("optimal_risk", "noise_power", "noise_bound"),
    "Certificate.bound by a bound of the noise": ("optimal_risk", "noise", "n_outputs"),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_absurd_argument_is_refused_by_name(name):
    function, good = CALLS[name]
    wrong = {}
    for place, (given, each) in enumerate(inspect.signature(function).parameters.items()):
        variable = each.kind in {each.VAR_KEYWORD, each.VAR_POSITIONAL}
        if variable or given in EXCLUDED.get(name, ()):
            continue
        try:
            function(**{**good, given: Absurd()})
        except PolyattnError as error:
            # A function may speak of itself where its first argument is no such thing.
            named = [given, name.rpartition(".")[2]] if place == 0 else [given]
            if not any(each in str(error) for each in named):
                wrong[given] = str(error)
        except Exception as error:  # noqa: BLE001 - any other error is the finding
            wrong[given] = repr(error)
        else:
            wrong[given] = "was accepted"
    assert wrong == {}


def test_every_public_function_is_called():
    public = {name for name in pa.__all__ if inspect.isfunction(getattr(pa, name))}
    public |= {f"programs.{name}" for name in P.__all__ if inspect.isfunction(getattr(P, name))}
    public |= {f"data.{name}" for name in pa.data.__all__ if name[0].islower()}
    # Frames, machines and words have tables of their own.
    elsewhere = {"from_long", "programs.all_traces", "programs.decide", "programs.names"}
    elsewhere |= {"programs.variables"}
    assert public - elsewhere <= CALLS.keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("verbs")
    np.savez(place / "data.npz", X=X, Y=Y)
    np.savez(place / "few.npz", X=X[:3], Y=Y[:3])
    np.savez(place / "soft.npz", X=SOFT.X, Y=SOFT.Y)
    np.savez(place / "wide.npz", X=WIDE)
    pa.save(LAYER, place / "layer.safetensors")
    pa.save(SOFTMAX, place / "softmax.safetensors")
    return place


#: A command, the exit code, and the library call that answers the same.
VERBS = {
    "fit data.npz": (0, lambda: pa.fit(X, Y)),
    "fit data.npz --ridge loo --n-heads 1": (0, lambda: pa.fit(X, Y, ridge="loo", n_heads=1)),
    "fit few.npz --ridge 0.5": (0, lambda: pa.fit(X[:3], Y[:3], ridge=0.5)),
    "certify data.npz": (0, lambda: pa.certify(X)),
    "certify few.npz": (3, lambda: pa.certify(X[:3])),
    "certify few.npz --domain boolean --lengths 2": (
        1,
        lambda: pa.certify(X[:3], domain=pa.domains.Boolean(lengths=2)),
    ),
    "audit layer.safetensors data.npz": (0, lambda: pa.audit(LAYER, X, Y)),
    "audit layer.safetensors few.npz": (3, lambda: pa.audit(LAYER, X[:3], Y[:3])),
    "audit softmax.safetensors wide.npz": (0, lambda: pa.audit(SOFTMAX, WIDE)),
    "learning-curve data.npz --n-repeats 2": (0, lambda: pa.learning_curve(X, Y, n_repeats=2)),
    "learn-softmax soft.npz": (0, lambda: pa.learn_softmax(SOFT.X, SOFT.Y)),
    "show layer.safetensors": (0, lambda: LAYER),
}

#: Verbs that write files and pages, or for which no single call of the library stands.
TESTED_ELSEWHERE = {"bench", "demo", "merge", "predict", "program", "report", "reproduce"}


def answer_of_library(make):
    try:
        made = make()
    except PolyattnError as error:
        return {"error": str(error)}
    if isinstance(made, pa.FitResult):
        made.layer  # noqa: B018 - verbs look for heads, a fit does so when asked
    # What audits and certificates are is a document; arrays of the others go into files.
    whole = isinstance(made, pa.Audit | pa.HeadAudit | pa.Certificate)
    return made.to_full_dict() if whole else made.to_dict()


@pytest.mark.parametrize("command", VERBS)
def test_a_verb_prints_what_the_library_answers(command, folder, run):
    code, make = VERBS[command]
    words = [str(folder / w) if (folder / w).exists() else w for w in command.split()]
    ended = run(*words, "--json")
    assert ended.exit_code == code, ended.output
    if code == 1:  # one line, as always with errors
        assert answer_of_library(make)["error"] in " ".join(ended.output.split())
        return
    printed = json.loads(ended.stdout)
    for field, expected in answer_of_library(make).items():  # seals are made anew
        assert field == "seal" or agree(printed[field], expected), field


def agree(printed, expected):
    """Equal up to rounding: sums may be added in another order."""
    if isinstance(expected, float) and isinstance(printed, int | float):
        return printed == pytest.approx(expected, rel=1e-9, abs=1e-12)
    if isinstance(expected, dict):
        return printed.keys() == expected.keys() and all(
            agree(printed[key], expected[key]) for key in expected
        )
    if isinstance(expected, list):
        return len(printed) == len(expected) and all(map(agree, printed, expected))
    if isinstance(expected, str):
        figures = r"[\d.e+-]*\d"
        return re.sub(figures, "#", printed) == re.sub(figures, "#", expected)
    return printed == expected


def test_every_verb_has_help(run):
    top = run("--help")
    assert top.exit_code == 0
    verbs = re.findall(r"^  ([a-z][a-z-]+)  +\S", top.output.partition("Commands:")[2], re.M)
    assert set(verbs) == {command.split()[0] for command in VERBS} | TESTED_ELSEWHERE
    for verb in verbs:
        ended = run(verb, "--help")
        assert ended.exit_code == 0
        assert "--help" in ended.output
