"""Associative memory: the spectrum and the figure of [yau2024: section 4.2, figure 2].

The paper measures both and states no lemma about memories: Lemma E.1 is the general certificate
(test_certify_general.py), and Lemma E.2 is about noise (test_certify_noise.py).
"""

import numpy as np
import pytest

import polyattn as pa
from polyattn_papers.yau2024.associative_memory import EXPERIMENT

N_SEQUENCES = 2**14


def memory(unitary: float, seed: int = 0):
    return pa.data.associative_memory(N_SEQUENCES, 4, unitary=unitary, random_state=seed)


@pytest.mark.parametrize(("unitary", "expected"), [(0.95, 0.061), (0.0, 2.5)])
@pytest.mark.parametrize("seed", [0, 1])
def test_smallest_eigenvalues_of_the_paper(unitary, expected, seed):
    certificate = pa.certify(memory(unitary, seed).X)
    assert certificate.verdict == "identifiable"
    assert certificate.n_features == 288
    assert certificate.lambda_min == pytest.approx(expected, rel=0.1)


def test_unitary_keys_alone_leave_the_layer_open():
    X = memory(1.0).X
    certificate = pa.certify(X)
    assert certificate.verdict == "not_identifiable"
    assert (certificate.rank, certificate.n_features) == (248, 288)
    witness = certificate.witness()
    assert witness.training_disagreement <= 1e-8
    assert witness.difference >= 1e-2


def test_the_memory_is_an_experiment_and_not_lemma_e_1():
    """That says nothing of keys: other data with the same features have the same answer."""
    assert "E.1" not in EXPERIMENT.reference
    X = memory(0.95).X[:2000]
    shuffled = X @ np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    assert pa.certify(shuffled).identifiable  # no keys and no values, and yet a certificate


def test_figure_2_distance_against_smallest_eigenvalue():
    """The fewer Gaussian keys, the smaller lambda_min, and the farther a fit to noisy targets."""
    shares = (0.95, 0.96, 0.97, 0.98, 0.99, 1.0)
    smallest, distances, exact = [], [], []
    for share in shares:
        task = memory(share)
        noise = np.random.default_rng(7).standard_normal(np.shape(task.Y))
        smallest.append(pa.certify(task.X).lambda_min)
        for found, Y in ((exact, task.Y), (distances, task.Y + 0.1 * noise)):
            found.append(float(np.linalg.norm(pa.fit(task.X, Y).coef - task.layer.coef)))
    assert np.all(np.diff(smallest) < 0)
    assert smallest[-1] == 0.0
    # lambda_min falls at least in proportion to the share of Gaussian keys.
    assert np.all(np.array(smallest[:-1]) <= 1.1 * smallest[0] / 0.05 * (1 - np.array(shares[:-1])))
    assert np.all(np.diff(distances[:-1]) > 0)
    assert max(exact) < 1e-8  # at 100 % the minimiser of least norm happens to be the true layer,
    witness = pa.certify(task.X).witness(task.layer)  # but others explain the data as well
    assert pa.coefficient_distance(witness.layer_b, task.layer) > 0.1
    assert np.mean((witness.layer_b(task.X) - task.Y) ** 2) < 1e-20
