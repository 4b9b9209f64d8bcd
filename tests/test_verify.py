"""verify: what is true is accepted, whatever was changed is found; certificates in files.

A forger is taken at his best: he edits the JSON document of a genuine certificate and renews its
seal, a SHA-256 of everything else.
"""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import forged_files as forged
import oracle
import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput

RNG = np.random.default_rng(0)
GAUSSIAN = RNG.standard_normal((90, 4, 3))
RAGGED = [RNG.standard_normal((n, 3)) for n in RNG.integers(1, 6, 120)]
FLAT = np.concatenate([GAUSSIAN[..., :2], GAUSSIAN[..., :2].sum(axis=-1, keepdims=True)], axis=2)
BOOLEAN = RNG.choice([-1, 1], (90, 4, 3))
REPEATED = np.concatenate([BOOLEAN[..., :2], BOOLEAN[..., :1]], axis=2)
SYMBOLS = np.eye(4, dtype=np.int8)[RNG.integers(4, size=(120, 3))]
FEW_SYMBOLS = np.eye(4, dtype=bool)[RNG.integers(3, size=(120, 3))]
PROMPTS = np.where(np.arange(4)[:, None] + np.arange(3) == 5, 0.0, GAUSSIAN)
IDS = pa.SequenceBatch.from_ids([[a, b] for a in range(19) for b in range(19)], 20)
SOME_BOOLEAN = pa.domains.Finite(RNG.choice([-1, 1], (30, 3, 3)))

# name: data, options of certify, and the verdict.
YES, NO, OPEN = "identifiable", "not_identifiable", "undecided"
CASES = {
    "gram": (GAUSSIAN, {}, YES),
    "bias": (RAGGED, {"mode": "causal", "bias": True}, YES),
    "one long sequence": (RNG.standard_normal((1, 900, 3)), {"mode": "causal"}, YES),
    "flat": (FLAT, {}, NO),
    "few": (GAUSSIAN[:5], {}, NO),
    "length one": (GAUSSIAN[:, :1], {"domain": pa.domains.Real(1)}, YES),
    "prompts": (PROMPTS, {}, NO),
    "multiples": (
        GAUSSIAN[..., [0, 1, 1]] * [1.0, 1.0, -4.0], {"form": pa.Form(decay=0.75)}, NO,
    ),
    "Boolean": (BOOLEAN, {"domain": "boolean"}, YES),
    "Boolean in floats": (BOOLEAN, {"domain": "boolean", "method": "float", "bias": True}, YES),
    "Boolean, on real inputs": (BOOLEAN, {"mode": "full"}, NO),
    "repeated": (REPEATED, {"domain": pa.domains.Boolean((2, 6)), "mode": "causal"}, NO),
    "one-hot": (SYMBOLS, {"domain": "one_hot", "bias": True, "mode": "full"}, YES),
    "one-hot, few symbols": (FEW_SYMBOLS, {"domain": "one_hot"}, NO),
    "finite": (BOOLEAN, {"domain": SOME_BOOLEAN}, YES),
    "finite, outside": (REPEATED, {"domain": SOME_BOOLEAN}, NO),
    "finite, undecided": (FLAT, {"domain": pa.domains.Finite(FLAT[:9])}, OPEN),
    "sampled": (
        BOOLEAN, {"domain": pa.domains.Sampled(lambda rng: rng.choice([-1, 1], (2, 3)), 9)}, OPEN,
    ),
    "form": (GAUSSIAN, {"form": pa.Form(include_query=False, mean=True, value=[0, 1])}, YES),
    "form of prompts": (PROMPTS, {"form": pa.Form(mean=True, skip=True, bias=True)}, NO),
    "decay": (FLAT, {"form": pa.Form(mode="causal", decay=[0.5, 0.9], query=[0, 1])}, NO),
    "many digits": (
        np.tile(RNG.integers(-(2**40), 2**40, (3, 2, 2)), (9, 1, 1)), {"domain": "real"}, NO,
    ),
    "ids": (IDS, {"domain": "one_hot"}, NO),
    "ids, real": (IDS, {"mode": "causal"}, NO),
}  # fmt: skip


@pytest.fixture(scope="module")
def certificates():
    return {name: pa.certify(X, **options) for name, (X, options, _) in CASES.items()}


def domain_of(name):
    """The domain, to be given again where a file does not hold it."""
    domain = CASES[name][1].get("domain")
    return domain if isinstance(domain, pa.domains.Finite | pa.domains.Sampled) else None


def document_of(certificate, path):
    certificate.save(path)
    return json.loads(path.read_text())


def written(document, path):
    """A sealed document as a file, of another release: only then may the sentence differ."""
    if "versions" in document:
        document = document | {"versions": document["versions"] | {"polyattn": "9.9"}}
    else:
        document = document | {"release": "9.9"}
    path.write_bytes(forged.sealed_document(document))
    return path


def is_refused(document, X, path, domain=None):
    """Whether a forged document is no certificate at all, or not true of the data."""
    try:
        return not pa.verify(pa.load(written(document, path)), X, domain)
    except FileFormatError:
        return True


@pytest.mark.parametrize("name", CASES)
def test_genuine_certificates_are_accepted_in_memory_and_from_files(name, certificates, tmp_path):
    X, _, verdict = CASES[name]
    certificate = certificates[name]
    assert certificate.verdict == verdict
    assert len(certificate.outcome.sentence) <= 240
    assert pa.verify(certificate, X)
    document = document_of(certificate, tmp_path / "c.json")
    loaded = pa.load(tmp_path / "c.json")
    assert pa.verify(loaded, X, domain_of(name))
    assert not getattr(getattr(loaded.direction, "flags", None), "writeable", False)
    assert document_of(loaded, tmp_path / "again.json") == document
    # The forger's tools are right: what he leaves as it is stays true.
    assert pa.verify(pa.load(written(document, tmp_path / "same.json")), X, domain_of(name))


def test_a_loaded_certificate_knows_what_it_lacks(certificates, tmp_path):
    pa.save(certificates["repeated"], tmp_path / "repeated")
    loaded = pa.load(tmp_path / "repeated")
    assert oracle.witness_fails(loaded.witness(), REPEATED, {"mode": "causal"}) == []
    assert np.all(np.abs(loaded.witness().input) == 1)
    for ask in (lambda: loaded.bound(REPEATED, 1.0), loaded.next_data):
        with pytest.raises(InvalidInput, match="data"):
            ask()
    certificates["finite, outside"].save(tmp_path / "c.json")
    stored = pa.load(tmp_path / "c.json")
    certificates["ids"].save(tmp_path / "c.json")
    assert pa.load(tmp_path / "c.json").witness().training_disagreement is None
    assert not pa.verify(stored, REPEATED)
    assert not pa.verify(stored, REPEATED, pa.domains.Finite(BOOLEAN[:5]))
    for name, refused in (("few", False), ("flat", True)):  # of few rows no direction is needed
        document = document_of(certificates[name], tmp_path / "c.json") | {"direction": None}
        assert is_refused(document, CASES[name][0], tmp_path / "c.json") == refused


def lies(document):
    """Values of each entry that make a certificate false, as plausible as may be."""
    d, verdicts = document, {YES, NO, OPEN}
    rank, whole = d["rank"] or 0, {"name": "real", "lengths": [1, None]}
    found = {
        "verdict": verdicts - {d["verdict"]},
        "verdict_on_real_inputs": verdicts - {d["verdict_on_real_inputs"]},
        "domain": [whole | {"lengths": [3, 3]}, whole | {"name": "boolean", "lengths": [1, 1]}],
        "mode": {"last", "causal", "full"} - {d["mode"]}, "bias": [not d["bias"]],
        "n_dims": [d["n_dims"] + 1, 1], "n_sequences": [d["n_sequences"] + 1, 1],
        "n_rows": [d["n_rows"] + 1, 10**6], "n_features": [d["n_features"] + 1],
        "dimension": [(d["dimension"] or 0) + 1, (d["dimension"] or 2) - 1],
        "rank": [rank + 1, rank - 1, 0],
        "lambda_max": [1.001 * (d["lambda_max"] or 1.0)],
        "method": {"count", "exact", "span"} - {d["method"]},
        "rounding": [1e-30, 1e6, None], "digest": ["0" * 64],
        "prime": [15, 4, 1 << 40] if d["prime"] else [3, 4194287],
        "min_length": [d["min_length"] + 1], "max_length": [d["max_length"] + 1, 1],
    }  # fmt: skip
    if d["lambda_min"] is not None and d["lambda_max"] is not None:
        found["lambda_min"] = [d["lambda_min"] + 1e-3 * d["lambda_max"]]
    if "structure" in d:
        known = d["structure"]
        zero, others = known["n_zero"], known["n_multiples"]
        found["structure"] = [known | change for change in (
            {"n_zero": zero + 1}, {"n_multiples": others + 1}, {"rest": NO}, {"queries": [0]},
            {"n_zero": 0, "n_multiples": zero + others + 1}, {"columns": [0]})]  # fmt: skip
    if "unseen" in d:  # of token ids
        places = (([0, 0, 0], "1"), ([0, 1, 0], "1"), ([19, 19, 19], "0"), ([0, 0, 99], "1"))
        found["unseen"] = [{"features": [at], "integers": [n]} for at, n in places]
        found |= {"n_occurring": [d["n_occurring"] - 1], "lambda_max": [2 * d["lambda_max"]]}
    else:
        found["direction"] = [{"integers": [number] * d["n_features"]} for number in ("0", "1")]
    if d.get("direction") is not None:
        ((kind, numbers),) = d["direction"].items()
        longer = str(int(numbers[0]) + 1) if kind == "integers" else "0x1.0p-20"
        found["direction"].append({kind: [longer, *numbers[1:]]})
    if "form" in d:
        found["form"] = [d["form"] | {"window": 2}, d["form"] | {"query": [1, 2]}, {}]
        found["n_context_dims"] = [d["n_dims"]]
    return found


TAMPERED = ("gram", "Boolean", "Boolean, on real inputs", "flat", "few", "repeated", "finite",
            "decay", "prompts", "multiples", "ids")  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_every_changed_entry_is_found(name, certificates, tmp_path):
    """Whoever seals the document again is found by recomputation."""
    document, X = document_of(certificates[name], tmp_path / "c.json"), CASES[name][0]
    for entry, values in lies(document).items():
        for value in values:
            if (entry, value) == ("verdict_on_real_inputs", OPEN) and name == "finite":
                continue  # that claims less, and nothing that is false
            changed = document | {entry: value}
            assert changed == document or is_refused(
                changed, X, tmp_path / "forged.json", domain_of(name)
            ), (entry, value)
    if document["method"] == "structure":
        del document["structure"]
        assert is_refused(document, X, tmp_path / "forged.json")


OPPOSED = ("gram", "bias", "length one", "Boolean", "one-hot", "finite",
           "few", "prompts", "repeated", "finite, outside", "many digits")  # fmt: skip


def denials(document, X, options):
    """Full rank denied, by the direction that the data see least."""
    form = {name: options[name] for name in ("mode", "bias") if name in options}
    psi = oracle.design([np.asarray(x, dtype=float) for x in X], form)
    least = np.linalg.svd(psi / (np.linalg.norm(psi, axis=0) + (~psi.any(axis=0))))[2][-1]
    size = document["dimension"]
    denied = {"verdict": NO, "verdict_on_real_inputs": NO, "prime": None, "lambda_min": 0.0}
    denied |= {"rank": (size or document["n_features"]) - 1, "rounding": 1e-12}
    denied |= {"method": "triangular" if size else "span"}
    denied |= {"direction": {"floats": [float(entry).hex() for entry in least]}}
    return [denied, denied | {"rounding": 1e-14}]


def claims(document):
    """Full rank claimed, by anything that could prove it."""
    p, size = document["n_features"], document["dimension"] or document["n_features"]
    claimed = {"verdict": YES, "verdict_on_real_inputs": YES if size == p else NO, "rank": size}
    claimed |= {"direction": None, "lambda_min": None, "note": ""}
    exact = claimed | {"method": "exact", "prime": 4194287, "rounding": 0.0}
    known = {"rank": document["rank"], "verdict_on_real_inputs": NO}
    in_floats = claimed | {"method": "gram", "prime": None, "rounding": 1e-12}
    return [exact, exact | known, in_floats, in_floats | {"method": "triangular"}]


@pytest.mark.parametrize("name", OPPOSED)
def test_the_opposite_verdict_is_never_believed(name, certificates, tmp_path):
    """With all that belongs to it.  Of rounded numbers, as they stand, the opposite may be true."""
    X, options, verdict = CASES[name]
    document = document_of(certificates[name], tmp_path / "c.json")
    forgeries = claims(document) if verdict == NO else denials(document, X, options)
    document.pop("structure", None)
    for changed in forgeries:
        assert is_refused(document | changed, X, tmp_path / "c.json", domain_of(name)), changed


def test_other_data_and_other_domains_are_found(certificates):
    for name in ("gram", "few", "repeated", "finite"):
        X = np.array(CASES[name][0])
        one_changed = X.copy()
        one_changed[2, 1, 0] *= -1
        for other in (one_changed, X[1:], X[:, ::-1], np.concatenate([X, X]), X[::-1]):
            assert not pa.verify(certificates[name], other)
    for other in ("real", pa.domains.Boolean(4), SOME_BOOLEAN):
        assert not pa.verify(certificates["Boolean"], BOOLEAN, other)
    assert not pa.verify(certificates["finite"], BOOLEAN, pa.domains.Finite(BOOLEAN[:5]))
    assert not pa.verify(certificates["ids"], IDS[1:])
    assert not pa.verify(certificates["ids"], IDS, domain="real")
    assert not pa.verify(pa.certify(statistics=pa.Moments(3).update(GAUSSIAN)), GAUSSIAN)


def test_a_direction_must_show_somewhere_and_be_unseen_whatever_its_length(certificates, tmp_path):
    def refused(document, direction, X, **changes):
        numbers = {"floats": [float(n).hex() for n in direction]}
        changed = document | {"direction": numbers} | changes
        return is_refused(changed, X, tmp_path / "c.json")

    # G_00 x_0 = G_11 x_0 for Boolean tokens: no difference at all, though not zero.
    document = document_of(certificates["repeated"], tmp_path / "c.json")
    assert refused(document, np.eye(18)[0] - np.eye(18)[9], REPEATED)
    flat = certificates["flat"]
    document = document_of(flat, tmp_path / "c.json")
    for length in (2.0**-80, 2.0**80):
        scaled = {"rounding": length * flat.rounding}
        assert not refused(document, length * flat.direction, FLAT, **scaled)
        assert refused(document, np.full(18, length), FLAT, **scaled)
    # Nearly unseen, with a bound that says how nearly; also of a plane that holds exactly.
    plane = np.round(8 * GAUSSIAN) / 8
    plane[..., 2] = plane[..., 0] + plane[..., 1]
    for X, genuine in ((FLAT, flat), (plane, pa.certify(plane, method="float"))):
        document = document_of(genuine, tmp_path / "c.json")
        for size, part in product((1e-4, 1e-9), (1, 8, 64)):
            nearly = genuine.direction + size * np.abs(genuine.direction).max()
            effect = float(np.linalg.norm(oracle.design(X, {}) @ nearly))
            assert refused(document, nearly, X, rounding=effect / part)


def test_a_context_outside_the_domain_and_columns_that_are_not_there_are_found(certificates):
    X, inside, outside = BOOLEAN[:5], BOOLEAN[5:10], GAUSSIAN[:5]
    boolean, real = pa.certify(X, context=inside, domain="boolean"), pa.certify(X, context=outside)
    assert pa.verify(boolean, X, context=inside)
    forged = replace(real, domain=boolean.domain, dimension=boolean.dimension)
    assert not pa.verify(forged, X, context=outside)
    prompts = certificates["form of prompts"]
    more = replace(prompts, structure=replace(prompts.structure, columns=(99,)))
    assert not pa.verify(more, PROMPTS)


def test_a_prime_that_divides_the_data_proves_nothing(tmp_path):
    prime = 4194287
    X = prime * np.random.default_rng(0).integers(-3, 4, (90, 3, 2))
    certificate = pa.certify(X, method="exact")
    assert certificate.identifiable
    assert pa.verify(certificate, X)
    document = document_of(certificate, tmp_path / "c.json")
    for wrong in (prime, 7):
        assert is_refused(document | {"prime": wrong}, X, tmp_path / "c.json")


@pytest.mark.parametrize("name", ["gram", "form of prompts", "ids"])
def test_every_change_without_a_new_seal_is_refused_by_the_name_of_the_file(
    name, certificates, tmp_path
):
    path = tmp_path / "forged.json"
    document = document_of(certificates[name], path)
    for entry in document:
        rest = {key: document[key] for key in document if key != entry}
        for changed in (rest, rest | {entry: "changed"}):
            path.write_text(json.dumps(changed))
            with pytest.raises(FileFormatError, match=r"forged\.json"):
                pa.load(path)


def test_entries_of_the_wrong_kind_are_named_though_sealed(certificates, tmp_path):
    document = document_of(certificates["repeated"], tmp_path / "c.json")
    for entry, value in (
        ("verdict", "perhaps"), ("rank", 2.0), ("bias", 1), ("lambda_min", -1.0), ("domain", {}),
        ("domain", {"name": "real", "lengths": [3, 2]}), ("direction", {"integers": ["1_0"]}),
        ("direction", {"floats": ["0x1.0p+2000"]}), ("direction", {"integers": ["9" * 9999]}),
    ):  # fmt: skip
        with pytest.raises(FileFormatError, match=entry):
            pa.load(written(document | {entry: value}, tmp_path / "c.json"))


def test_the_verb_takes_lengths_and_sums_and_its_exit_code_is_the_verdict(run):
    np.save("boolean.npy", BOOLEAN)
    np.save("steep.npy", GAUSSIAN @ [[1, 0, 1], [0, 1, 0], [0, 0, 1e-6]])
    pa.Moments(3).update(GAUSSIAN).save("moments.safetensors")
    for arguments, code in (
        ("steep.npy", 4), ("moments.safetensors", 0),
        ("boolean.npy --domain boolean --lengths 5:", 1),
        ("boolean.npy --domain boolean --lengths 2:9 --save c.json", 0),
    ):  # fmt: skip
        assert run("certify", *arguments.split()).exit_code == code, arguments
    assert pa.load("c.json").domain == pa.domains.Boolean((2, 9))
