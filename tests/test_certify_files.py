"""Certificates in files, and verify: what is true is accepted, what was changed is found."""

import json
import re
from dataclasses import fields, replace
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyattn as pa
from polyattn import domains
from polyattn.certify.check import features, measure, objections, verify
from polyattn.certify.check.domains import CHECKED
from polyattn.certify.document import OPTIONAL, from_document, seal, to_document
from polyattn.certify.structure import Structure
from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.progress import listening
from polyattn.sequences import MODES, as_batch

RNG = np.random.default_rng(0)
GAUSSIAN = RNG.standard_normal((90, 4, 3))
RAGGED = [RNG.standard_normal((n, 3)) for n in RNG.integers(1, 6, 120)]
FLAT = np.concatenate([GAUSSIAN[..., :2], GAUSSIAN[..., :2].sum(axis=-1, keepdims=True)], axis=2)
STEEP = GAUSSIAN @ [[1, 0, 1], [0, 1, 0], [0, 0, 1e-3]]
BOOLEAN = RNG.choice([-1, 1], (90, 4, 3))
REPEATED = np.concatenate([BOOLEAN[..., :2], BOOLEAN[..., :1]], axis=2)
SYMBOLS = np.eye(4, dtype=np.int8)[RNG.integers(4, size=(120, 3))]
FEW_SYMBOLS = np.eye(4, dtype=bool)[RNG.integers(3, size=(120, 3))]
SOME_BOOLEAN = domains.Finite(RNG.choice([-1, 1], (30, 3, 3)))

# name: data, options of certify, and what must come out (verdict, method).
CASES = {
    "gram": (GAUSSIAN, {}, ("identifiable", "gram")),
    "ragged": (RAGGED, {}, ("identifiable", "gram")),
    "causal": (RAGGED, {"mode": "causal"}, ("identifiable", "gram")),
    "one long sequence": (
        RNG.standard_normal((1, 900, 3)), {"mode": "causal"}, ("identifiable", "gram"),
    ),
    "full": (RAGGED, {"mode": "full"}, ("identifiable", "gram")),
    "bias": (RAGGED, {"mode": "causal", "bias": True}, ("identifiable", "gram")),
    "huge": (GAUSSIAN * 1e70, {}, ("identifiable", "gram")),
    "steep": (STEEP, {"mode": "full"}, ("identifiable", "triangular")),
    "exact floats": (GAUSSIAN, {"method": "exact"}, ("identifiable", "exact")),
    "many Boolean rows": (
        np.random.default_rng(0).choice([-1.0, 1.0], size=(3000, 4, 3)), {"method": "float"},
        ("not_identifiable", "structure"),
    ),
    "flat": (FLAT, {}, ("not_identifiable", "triangular")),
    "flat with bias": (FLAT, {"mode": "causal", "bias": True}, ("not_identifiable", "triangular")),
    "few": (GAUSSIAN[:5], {}, ("not_identifiable", "count")),
    "few causal": (GAUSSIAN[:4], {"mode": "causal"}, ("not_identifiable", "count")),
    "single tokens": (GAUSSIAN[:, :1], {}, ("not_identifiable", "count")),
    "length one": (GAUSSIAN[:, :1], {"domain": domains.Real(1)}, ("identifiable", "gram")),
    "Boolean": (BOOLEAN, {"domain": "boolean"}, ("identifiable", "exact")),
    "Boolean in floats": (
        BOOLEAN, {"domain": "boolean", "method": "float", "bias": True}, ("identifiable", "gram"),
    ),
    "Boolean, length one": (
        BOOLEAN[:, :1], {"domain": domains.Boolean(1), "bias": True}, ("identifiable", "exact"),
    ),
    "Boolean, on real inputs": (BOOLEAN, {"mode": "full"}, ("not_identifiable", "exact")),
    "repeated": (
        REPEATED, {"domain": domains.Boolean((2, 6)), "mode": "causal"},
        ("not_identifiable", "exact"),
    ),
    "one-hot": (SYMBOLS, {"domain": "one_hot"}, ("identifiable", "exact")),
    "one-hot with bias": (
        SYMBOLS, {"domain": "one_hot", "bias": True, "mode": "full"}, ("identifiable", "exact"),
    ),
    "one-hot, few symbols": (
        FEW_SYMBOLS, {"domain": "one_hot", "bias": True}, ("not_identifiable", "exact"),
    ),
    "finite": (BOOLEAN, {"domain": SOME_BOOLEAN}, ("identifiable", "exact")),
    "finite, outside": (REPEATED, {"domain": SOME_BOOLEAN}, ("not_identifiable", "exact")),
    "finite, in floats": (
        FLAT, {"domain": domains.Finite(GAUSSIAN[:9])}, ("not_identifiable", "span"),
    ),
    "finite, undecided": (FLAT, {"domain": domains.Finite(FLAT[:9])}, ("undecided", "span")),
    "sampled": (
        GAUSSIAN, {"domain": domains.Sampled(lambda rng: rng.standard_normal((2, 3)), 9)},
        ("identifiable", "gram"),
    ),
    "sampled, undecided": (
        BOOLEAN, {"domain": domains.Sampled(lambda rng: rng.choice([-1, 1], (2, 3)), 9)},
        ("undecided", "exact"),
    ),
    "zeros": (np.zeros((30, 2, 2)), {}, ("not_identifiable", "exact")),
}  # fmt: skip


@pytest.fixture(scope="module")
def certificates():
    return {name: pa.certify(X, **options) for name, (X, options, _) in CASES.items()}


def given_domain(name):
    """The domain, to be given again where a file does not hold it."""
    domain = CASES[name][1].get("domain")
    return domain if isinstance(domain, domains.Finite | domains.Sampled) else None


# Genuine ones -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_genuine_certificates_are_accepted(name, certificates, tmp_path):
    X, _, expected = CASES[name]
    certificate = certificates[name]
    assert (certificate.verdict, certificate.method) == expected
    assert objections(certificate, X) == []
    pa.save(certificate, tmp_path / "certificate")
    loaded = pa.load(tmp_path / "certificate")
    assert objections(loaded, X, given_domain(name)) == []
    assert verify(loaded, as_batch(X), given_domain(name))


@pytest.mark.parametrize(
    "name", ["causal", "full", "flat", "Boolean", "repeated", "finite, outside"]
)
def test_data_in_many_blocks_are_judged_the_same(name, certificates, monkeypatch):
    monkeypatch.setattr(features, "BLOCK_NUMBERS", 64)
    monkeypatch.setattr(measure, "BLOCK_NUMBERS", 64)
    assert objections(certificates[name], CASES[name][0]) == []
    forged = replace(certificates[name], rank=certificates[name].rank - 1)
    assert objections(forged, CASES[name][0])


@pytest.mark.parametrize("name", CASES)
def test_round_trips_are_exact(name, certificates, tmp_path):
    certificate = certificates[name]
    certificate.save(tmp_path / "certificate.json")
    loaded = pa.Certificate.load(tmp_path / "certificate.json")
    document = to_document(certificate)
    assert to_document(loaded) == document
    assert json.loads((tmp_path / "certificate.json").read_text()) == document
    assert str(loaded) == str(certificate)
    assert loaded.sentence == str(certificate.outcome) == document["sentence"]
    assert repr(loaded) == repr(certificate)
    if isinstance(certificate.direction, np.ndarray):
        np.testing.assert_array_equal(loaded.direction, certificate.direction)
    else:
        assert loaded.direction == certificate.direction
    assert is_valid(document, SCHEMA), name


def test_a_loaded_certificate_knows_what_it_lacks(certificates, tmp_path):
    certificates["repeated"].save(tmp_path / "repeated")
    loaded = pa.Certificate.load(tmp_path / "repeated")
    witness = loaded.witness()
    assert witness.difference > 0.1
    assert np.all(np.abs(witness.input) == 1)
    for ask in (lambda: loaded.bound(REPEATED, 1.0), loaded.next_data):
        with pytest.raises(InvalidInput, match="certify the data again"):
            ask()
    stored = from_document(to_document(certificates["finite, outside"]))
    assert str(stored.domain) == str(SOME_BOOLEAN)
    with pytest.raises(InvalidInput, match="give the domain again"):
        stored.witness()


@settings(max_examples=80)
@given(
    st.integers(0, 2**32), st.sampled_from(MODES), st.booleans(),
    st.sampled_from(["real", "boolean", "one_hot"]), st.sampled_from(["auto", "exact", "float"]),
)  # fmt: skip
def test_whatever_is_certified_is_accepted(seed, mode, bias, domain, method):
    rng = np.random.default_rng(seed)
    d, lengths = int(rng.integers(1, 4)), rng.integers(1, int(rng.integers(2, 6)), rng.integers(60))
    tokens = {
        "real": lambda n: rng.standard_normal((n, d)) * rng.choice([1, 1e-3], d),
        "boolean": lambda n: rng.choice([-1, 1], (n, d)),
        "one_hot": lambda n: np.eye(d)[rng.integers(d, size=n)],
    }[domain]
    X = [tokens(n) for n in (*lengths, 2)]
    certificate = pa.certify(X, mode, domain, bias=bias, method=method)
    assert objections(from_document(to_document(certificate)), X) == []


def test_integers_of_any_size_are_kept(certificates):
    huge = tuple((-7) ** (10000 * (i == 3)) * i for i in range(18))
    certificate = replace(certificates["Boolean, on real inputs"], given_direction=huge)
    assert from_document(json.loads(json.dumps(to_document(certificate)))).direction == huge


# Changed ones -------------------------------------------------------------------------------

FIELDS = [
    field.name for field in fields(pa.Certificate) if field.name not in ("evidence", "relations")
]


def changes(certificate):
    """Values of each field that make the certificate false."""
    c, verdicts = certificate, {"identifiable", "not_identifiable", "undecided"}
    return {
        "verdict": verdicts - {c.verdict},
        "verdict_on_real_inputs": verdicts - {c.verdict_on_real_inputs},
        "domain": [domains.Real(3), domains.Boolean(1), domains.OneHot((7, None))],
        "mode": set(MODES) - {c.mode},
        "bias": [not c.bias],
        "n_dims": [c.n_dims + 1, 1],
        "n_sequences": [c.n_sequences + 1, 1],
        "n_rows": [c.n_rows + 1, 10**6],
        "n_features": [c.n_features + 1],
        "dimension": [c.dimension + 1, c.dimension - 1, None],
        "rank": [c.rank + 1, c.rank - 1, 0],
        "lambda_min": [c.lambda_min + 1e-3 * c.lambda_max],
        "lambda_max": [1.001 * c.lambda_max, 0.0],
        "method": {"count", "exact", "span"} - {c.method},
        "rounding": [1e-30, 1e6, np.inf],
        "digest": ["0" * 64],
        "note": ["All is well."],
        "prime": [15, 2, 4, 1 << 40] if c.prime else [3, 4194287],
        "given_direction": _changed_directions(c),
        "structure": [Structure(1, 0, "identifiable"), Structure(0, 2, "undecided", (0,))],
        "given_form": [
            pa.Form(mode=c.mode, bias=c.bias, include_query=False),
            pa.Form(mode=c.mode, bias=c.bias, key=[0], value=[0]),
        ],
        "n_context_dims": [c.n_dims],
        "min_length": [c.min_length + 1],
        "max_length": [c.max_length + 1, 1],
    }


TAMPERED = ("gram", "exact floats", "Boolean", "Boolean, on real inputs", "flat", "few", "repeated")


def _changed_directions(certificate):
    direction, size = certificate.direction, certificate.n_features
    if certificate.verdict == "identifiable":
        return [(1,) * size, np.ones(size)]
    whole = isinstance(direction, tuple)
    at = next(i for i, entry in enumerate(direction) if entry)
    longer = list(direction)
    longer[at] = longer[at] + 1 if whole else 1.001 * longer[at]
    zeros = [0 * entry for entry in direction]
    return [tuple(each) if whole else np.array(each) for each in (longer, zeros)]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("name", TAMPERED)
def test_every_changed_field_is_found(name, field, certificates):
    """Whoever seals the document again is found by recomputation."""
    for changed in changes(certificates[name])[field]:
        forged = replace(certificates[name], evidence=None)
        # A direction that was not asked for yet is computed from the evidence.
        direction = {"given_direction": certificates[name].direction}
        forged = replace(forged, **direction | {field: changed})
        found = objections(forged, CASES[name][0])
        assert found, changed
        assert all(re.fullmatch(r"[^\n]+\.", reason) for reason in found)
        try:
            loaded = from_document(to_document(forged))
        except FileFormatError:
            # They belong together.
            assert field in ("n_dims", "bias", "mode", "n_features", "given_form", "structure")
        else:
            assert not verify(loaded, CASES[name][0])


@pytest.mark.parametrize("name", TAMPERED)
def test_every_unsealed_change_is_refused(name, certificates, tmp_path):
    document = to_document(certificates[name])
    for entry in document:
        for changed in (None, "changed", 17, True, [], {"a": 1}):
            if changed == document[entry] and type(changed) is type(document[entry]):
                continue  # not a change
            path = tmp_path / "forged.json"
            path.write_text(json.dumps(document | {entry: changed}))
            with pytest.raises(FileFormatError, match=r"forged\.json"):
                pa.Certificate.load(path)


def test_the_sentence_is_part_of_the_claim(certificates):
    document = to_document(certificates["flat"])
    document["sentence"] = to_document(certificates["gram"])["sentence"]
    document["seal"] = seal(document)
    with pytest.raises(FileFormatError, match="sentence"):
        from_document(document)
    # Another release may put it differently.
    document["versions"] = document["versions"] | {"polyattn": "9.9"}
    document["seal"] = seal(document)
    assert str(from_document(document)) == str(certificates["flat"])


@pytest.mark.parametrize("name", ["gram", "flat", "few", "Boolean", "repeated", "finite"])
def test_other_data_are_found(name, certificates):
    X = np.array(CASES[name][0])
    one_changed = X.copy()
    one_changed[2, 1, 0] *= -1
    for other in (one_changed, X[1:], X[:, ::-1], X[:, :-1], np.concatenate([X, X])):
        (reason, *_) = objections(certificates[name], other)
        assert "not those that were certified" in reason


def test_a_forger_who_replaces_the_digest_is_found(certificates):
    """The claims are about the features, not only about the digest."""
    for name, other in (("gram", FLAT), ("Boolean", REPEATED), ("exact floats", BOOLEAN[..., :3])):
        about_other = pa.certify(other)
        forged = replace(certificates[name], digest=about_other.digest, lambda_min=None)
        forged = replace(forged, lambda_max=None, n_rows=about_other.n_rows)
        assert objections(forged, other)
    lie = replace(pa.certify(REPEATED, "last", "boolean"), verdict="identifiable", rank=12)
    lie = replace(lie, given_direction=None)
    assert any("rank 4 of 12" in reason for reason in objections(lie, REPEATED))


def test_a_direction_must_show_somewhere_in_the_domain(certificates):
    """G_00 x_0 = G_11 x_0 for Boolean tokens: no difference at all, though not zero."""
    nothing = np.zeros(18, dtype=int)
    nothing[0], nothing[9] = 1, -1
    for direction in (tuple(nothing.tolist()), nothing.astype(float)):
        forged = replace(certificates["repeated"], given_direction=direction)
        assert any("no effect anywhere" in reason for reason in objections(forged, REPEATED))


@pytest.mark.parametrize("length", [2.0**-80, 1.0, 2.0**80])
def test_a_direction_is_judged_whatever_its_length(length, certificates):
    flat = certificates["flat"]
    true = replace(flat, given_direction=length * flat.direction, rounding=length * flat.rounding)
    assert objections(true, FLAT) == []
    false = replace(true, given_direction=length * np.ones(18))
    assert any("rounding explains no more" in reason for reason in objections(false, FLAT))


def test_rounding_of_inputs_explains_a_plane_and_no_small_deviations():
    """Coefficients that show in the cube of a deviation alone are beyond what rounding moves."""
    bent = GAUSSIAN.copy()
    bent[..., 2] = bent[..., 1] + 1e-6 * bent[..., 2]
    shares = []
    for X in (FLAT, bent):
        evidence = pa.certify(X, method="float").evidence
        measured = measure.MeasuredTable(as_batch(X), "last", False)
        # Of what seems unseen the last direction is the one with the smallest effect.
        shares.append(measured.explained(evidence.null_basis[:, -1], np.ones(3, dtype=bool)))
    assert shares[0] > 0.9
    assert shares[1] < 0.5


def test_other_data_are_judged_no_further(certificates):
    (reason,) = objections(certificates["Boolean"], GAUSSIAN)
    assert "not those that were certified" in reason


def test_progress_of_verify_is_reported_to_the_end(certificates, monkeypatch):
    monkeypatch.setattr(features, "BLOCK_NUMBERS", 64)
    heard = []
    with listening(lambda done, total: heard.append((done, total))):
        assert verify(certificates["gram"], GAUSSIAN)
    assert (90, 90) in heard
    assert all(0 < done <= total for done, total in heard)


@pytest.mark.parametrize(
    "direction",
    [{"words": []}, {"words": ["1"]}, {"integers": "1" * 18}, {"integers": 1}, {"floats": [1.0]}],
)
def test_a_direction_is_a_list_of_numbers_in_words(direction, certificates):
    document = to_document(certificates["repeated"]) | {"direction": direction}
    with pytest.raises(FileFormatError, match="direction"):
        from_document(document | {"seal": seal(document)})


def test_of_fewer_rows_than_dimensions_no_direction_is_needed(certificates):
    few, flat = (
        replace(certificates[name], evidence=None, given_direction=None) for name in ("few", "flat")
    )
    assert objections(few, CASES["few"][0]) == []
    assert any("no direction" in reason for reason in objections(flat, FLAT))


def test_the_rank_must_be_that_modulo_the_prime_of_the_certificate():
    """All features are multiples of a prime: modulo that they prove nothing."""
    prime = 4194287
    X = prime * np.random.default_rng(0).integers(-3, 4, (90, 3, 2))
    certificate = pa.certify(X, method="exact")
    assert (certificate.method, objections(certificate, X)) == ("exact", [])
    (reason,) = objections(replace(certificate, prime=prime), X)
    assert f"modulo the prime {prime} the rank is 0" in reason
    (reason,) = objections(replace(certificate, prime=7), X)
    assert "7 is not a prime between" in reason


@pytest.mark.parametrize("X", [GAUSSIAN, BOOLEAN, REPEATED])
def test_the_verdict_on_real_inputs_is_checked_for_custom_domains(X):
    certificate = pa.certify(X, domain=SOME_BOOLEAN)
    for lie in {"identifiable", "not_identifiable"} - {certificate.verdict_on_real_inputs}:
        forged = replace(certificate, verdict_on_real_inputs=lie)
        assert any("on real inputs" in reason for reason in objections(forged, X))


def test_domains_are_compared(certificates):
    accepted, asked = certificates["Boolean"], certificates["finite"]
    assert verify(accepted, BOOLEAN, "boolean")
    for other in ("real", domains.Boolean(4), SOME_BOOLEAN):
        assert any(
            "is about the domain" in reason for reason in objections(accepted, BOOLEAN, other)
        )
    stored = from_document(to_document(asked))
    assert any("give the domain again" in reason for reason in objections(stored, BOOLEAN))
    assert objections(stored, BOOLEAN, domains.Finite(BOOLEAN[:5]))
    assert verify(stored, BOOLEAN, SOME_BOOLEAN)
    # On another finite domain the verdict may differ: here the data leave something open.
    wider = domains.Finite(GAUSSIAN[:20])
    forged = replace(asked, domain=wider)
    assert any("not in the span" in reason for reason in objections(forged, BOOLEAN))


def test_sums_are_not_data(certificates):
    sums = pa.Moments(3).update(GAUSSIAN)
    assert any("Moments" in reason for reason in objections(certificates["gram"], sums))
    of_sums = pa.certify(statistics=sums)
    assert any("digest" in reason for reason in objections(of_sums, GAUSSIAN))
    with pytest.raises(InvalidInput, match="X"):
        verify(certificates["gram"], np.ones(3))


# Files --------------------------------------------------------------------------------------

BROKEN = {
    "empty": (b"", "not a polyattn file|not a certificate"),
    "text": (b"{not json", "not a certificate"),
    "a list": (b"[1, 2]", "not a polyattn file"),
    "another object": (b'{"a": 1}', "not a polyattn certificate"),
    "deep": (b'{"a":' * 100_000, "not a certificate"),
    "constants": (b'{"format": NaN}', "not a certificate"),
    "bytes": (b"{\xff\xfe", "not a certificate"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name, tmp_path):
    content, words = BROKEN[name]
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(FileFormatError, match=words):
        pa.load(tmp_path / "file")


def test_truncated_and_newer_certificates_are_refused(certificates, tmp_path):
    path = tmp_path / "certificate"
    certificates["repeated"].save(path)
    text = path.read_text()
    for cut in (1, 10, len(text) // 2, len(text) - 3):
        path.write_text(text[:cut])
        with pytest.raises(FileFormatError):
            pa.Certificate.load(path)
    path.write_text(text.replace('"version": 1', '"version": 2'))
    with pytest.raises(FileFormatError, match=r"version 2.*Upgrade"):
        pa.Certificate.load(path)
    with pytest.raises(FileNotFoundError, match="no file"):
        pa.Certificate.load(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="folder"):
        pa.save(certificates["gram"], tmp_path / "missing" / "certificate")
    with pytest.raises(InvalidType, match="Certificate"):
        to_document("gram")


def test_a_missing_or_unknown_entry_is_named(certificates):
    document = to_document(certificates["gram"])
    for entry in document:
        if entry not in ("format", "version", "min_length", "max_length"):
            with pytest.raises(FileFormatError, match=entry):
                from_document({name: document[name] for name in document if name != entry})
    with pytest.raises(FileFormatError, match="remark"):
        from_document(document | {"remark": "true"})


def test_wrong_entries_are_named(certificates):
    document = to_document(certificates["repeated"])
    wrong = {
        "verdict": "perhaps", "mode": "first", "method": "guess", "rank": -1, "n_dims": 2.0,
        "lambda_min": -1.0, "digest": "abc", "bias": 1, "prime": 1, "rounding": "small",
        "domain": {"name": "real", "lengths": [0, 2]}, "versions": {"polyattn": "1"},
        "direction": {"integers": ["1"]}, "seal": "0",
    }  # fmt: skip
    for entry, value in wrong.items():
        with pytest.raises(FileFormatError, match=entry):
            from_document(document | {entry: value})
        changed = document | {entry: value}
        assert entry == "direction" or not is_valid(changed, SCHEMA), entry
    others = {
        "domain": [
            {"name": "nowhere", "lengths": [1, None]}, {"name": "real", "lengths": [True, None]},
            {"name": "real", "lengths": [1]}, {"name": "real", "lengths": [3, 2]}, {}, "real",
        ],
        "direction": [
            {"integers": [1]}, {"integers": "12"}, {"integers": ["1_0"]}, {"words": []}, {},
            {"integers": ["9" * 9999]}, {"floats": ["1.0"]}, {"floats": ["0x1.0p+2000"]},
        ],
    }  # fmt: skip
    for entry, values in others.items():
        for value in values:
            with pytest.raises(FileFormatError, match=entry):
                from_document(document | {entry: value})


# The published schema, by the few keywords that it uses ----------------------------------------

SCHEMA_FILE = resources.files("polyattn.certify") / "certificate.schema.json"
SCHEMA = json.loads(SCHEMA_FILE.read_text())
TYPES = {
    "object": {dict}, "array": {list}, "string": {str}, "boolean": {bool}, "null": {type(None)},
    "integer": {int}, "number": {int, float},
}  # fmt: skip


def is_valid(value, schema):
    schema = SCHEMA["$defs"]["sha256"] if "$ref" in schema else schema
    if "oneOf" in schema:
        return sum(is_valid(value, each) for each in schema["oneOf"]) == 1
    wanted = schema.get("type", list(TYPES))
    kinds = set().union(
        *(TYPES[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted))
    )
    parts = {
        str: _text_fits,
        dict: _entries_fit,
        list: _items_fit,
        int: _size_fits,
        float: _size_fits,
    }
    fits = parts.get(type(value), lambda *_: True)
    same = value == schema.get("const", value) and value in schema.get("enum", [value])
    return type(value) in kinds and same and fits(value, schema)


def _text_fits(value, schema):
    return re.search(schema.get("pattern", ""), value) is not None


def _size_fits(value, schema):
    return value >= schema.get("minimum", -np.inf)


def _entries_fit(value, schema):
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    return set(schema.get("required", [])) <= set(value) and all(
        known.get(name, others) is not False and is_valid(entry, known.get(name, others))
        for name, entry in value.items()
    )


def _items_fit(value, schema):
    each = [*schema.get("prefixItems", []), *[schema.get("items", {})] * len(value)]
    pairs = zip(value, each, strict=False)
    return len(value) >= schema.get("minItems", 0) and all(
        wanted is not False and is_valid(item, wanted) for item, wanted in pairs
    )


def test_the_schema_names_every_entry(certificates):
    optional = set(SCHEMA["properties"]) - set(SCHEMA["required"])
    lengths = {"min_length", "max_length"}
    assert optional == {"structure", "form", "n_context_dims"} | lengths == set(OPTIONAL)
    assert SCHEMA["required"] == [name for name in SCHEMA["properties"] if name not in optional]
    always = set(SCHEMA["required"]) | lengths
    assert always == set(to_document(certificates["gram"]))
    assert set(to_document(certificates["zeros"])) == always | {"structure"}


def test_certificates_of_older_releases_state_no_lengths(certificates):
    """They are read, and speak of tokens without saying how many."""
    document = to_document(certificates["ragged"])
    older = {name: each for name, each in document.items() if not name.endswith("_length")}
    loaded = from_document(older | {"seal": seal(older)})
    assert certificates["ragged"].data_sizes == "120 sequences, 1..5 tokens of 3 coordinates"
    assert loaded.data_sizes == "120 sequences, tokens of 3 coordinates"
    assert verify(loaded, RAGGED)


# Domains ------------------------------------------------------------------------------------------


def test_a_domain_has_one_name_everywhere():
    """The registry, the checker and the published schema list the same built-in domains."""
    assert all(name == kind.name for name, kind in domains.BUILT_IN.items())
    assert set(CHECKED) == set(domains.BUILT_IN)
    assert f'"name": {{ "enum": {json.dumps(list(domains.BUILT_IN))} }}' in SCHEMA_FILE.read_text()


def test_the_checker_objects_to_a_domain_that_it_does_not_know(certificates):
    class Positive(domains.Real):
        name = "positive"

    certificate = replace(certificates["gram"], domain=Positive())
    assert "the checker knows no domain 'positive'." in objections(certificate, CASES["gram"][0])
