"""Chemical reactions by a small grammar, in SMILES, and their tokens for rxnmapper.

A group is bound by the first atom of its text, so it can follow any other.  A reaction is a rule
that puts groups together on both sides of ``>>``; solvents and reagents stand among the reactants,
as in patents.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TOKEN = re.compile(r"\[[^\]]+\]|%\d\d|>>|Br|Cl|[BCNOPSFIbcnops]|\d|[()=#\-+/\\.~*:]", re.ASCII)

RINGS = (
    "c1ccccc1", "c1ccc(C)cc1", "c1ccc(F)cc1", "c1ccc(OC)cc1", "c1ccc(Cl)cc1", "c1cccc(C)c1",
    "c1ccc(C(F)(F)F)cc1", "c1cccc([N+](=O)[O-])c1", "c1ccc(C#N)cc1", "c1ccncc1", "c1cccnc1",
    "c1ccc2ccccc2c1", "c1ccsc1", "c1ccoc1", "C1CCCCC1", "C1CCOCC1", "C1CC1",
)  # fmt: skip
CHAINS = ("C", "CC", "CCC", "CCCC", "CCCCC", "C(C)C", "CC(C)C", "CC=C", "CCOC", "CCN(C)C")
AMINES = ("N1CCOCC1", "N1CCCCC1", "N1CCN(C)CC1", "N1CCCC1")
SOLVENTS = ("C1CCOC1", "CN(C)C=O", "ClCCl", "CCO", "CO", "CC#N", "Cc1ccccc1", "C1COCCO1", "O")
BASES = ("CCN(CC)CC", "O=C([O-])[O-].[K+].[K+]", "[OH-].[Na+]", "CCN(C(C)C)C(C)C", "c1ccncc1")


def reactions(n_reactions: int, seed: int = 0) -> list[str]:
    """Different reaction SMILES, reactants and reagents before ``>>``, the product behind it."""
    rng = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < n_reactions:
        rule = RULES[rng.integers(len(RULES))]
        reactants, product = rule(rng)
        order = rng.permutation(len(reactants))
        found[f"{'.'.join(reactants[i] for i in order)}>>{product}"] = None
    return list(found)


def tokens(smiles: str) -> list[str]:
    """A SMILES as tokens; what is no token raises ValueError."""
    found = TOKEN.findall(smiles)
    if "".join(found) != smiles:
        raise ValueError(f"not all of {smiles!r} is SMILES")
    return found


def token_ids(vocabulary: Path, n_reactions: int, seed: int = 0) -> list[NDArray[np.intp]]:
    """Ids of reactions for rxnmapper: CLS, tokens, SEP; lengths differ."""
    known = {word: number for number, word in enumerate(vocabulary.read_text().split())}
    words = (["[CLS]", *tokens(each), "[SEP]"] for each in reactions(n_reactions, seed))
    return [np.array([known[word] for word in each]) for each in words]


def _one(rng: np.random.Generator, choices: tuple[str, ...]) -> str:
    return choices[rng.integers(len(choices))]


def _renumbered(ring: str) -> str:
    """The same ring by other numbers, to stand inside of one that is still open."""
    return ring.replace("1", "3").replace("2", "4")


def _group(rng: np.random.Generator) -> str:
    """Something that is bound by its first atom: a ring, a chain, or a ring on a chain."""
    kind = rng.integers(3)
    if kind == 0:
        return _one(rng, RINGS)
    return _one(rng, CHAINS) if kind == 1 else f"C{_one(rng, RINGS)}"


def _esterification(rng: np.random.Generator) -> tuple[list[str], str]:
    acid, alcohol = _group(rng), _group(rng)
    made = f"O=C(O{alcohol}){acid}"
    return [f"O=C(O){acid}", f"O{alcohol}", "O=S(=O)(O)O", _one(rng, SOLVENTS)], made


def _amide(rng: np.random.Generator) -> tuple[list[str], str]:
    acid, amine = _group(rng), _group(rng)
    beside = [_one(rng, SOLVENTS), _one(rng, BASES)]
    return [f"O=C(O){acid}", f"N{amine}", *beside], f"O=C(N{amine}){acid}"


def _acid_chloride(rng: np.random.Generator) -> tuple[list[str], str]:
    acid, amine = _group(rng), _one(rng, AMINES)
    beside = [_one(rng, SOLVENTS), _one(rng, BASES)]
    return [f"O=C(Cl){acid}", amine, *beside], f"O=C({amine}){acid}"


def _suzuki(rng: np.random.Generator) -> tuple[list[str], str]:
    first, second = _one(rng, RINGS[:14]), _one(rng, RINGS[:14])
    beside = ["[Pd]", "O=C([O-])[O-].[K+].[K+]", _one(rng, SOLVENTS)]
    return [
        f"Br{first}",
        f"OB(O){second}",
        *beside,
    ], f"{first[:2]}({_renumbered(second)}){first[2:]}"


def _ether(rng: np.random.Generator) -> tuple[list[str], str]:
    phenol, chain = _one(rng, RINGS[:9]), _one(rng, CHAINS)
    beside = [_one(rng, BASES), _one(rng, SOLVENTS)]
    return [f"O{phenol}", f"Br{chain}", *beside], f"O({chain}){phenol}"


def _reductive_amination(rng: np.random.Generator) -> tuple[list[str], str]:
    aldehyde, amine = _one(rng, RINGS), _one(rng, AMINES)
    reagents = ["[Na+].[BH3-]C#N", _one(rng, SOLVENTS)]
    return [f"O=C{aldehyde}", amine, *reagents], f"C({amine}){aldehyde}"


def _nitro_reduction(rng: np.random.Generator) -> tuple[list[str], str]:
    ring = _one(rng, RINGS[:7])
    beside = ["[Fe]", "[Cl-].[NH4+]", _one(rng, SOLVENTS), "O"]
    return [f"O=[N+]([O-]){ring}", *beside], f"N{ring}"


def _saponification(rng: np.random.Generator) -> tuple[list[str], str]:
    acid, chain = _group(rng), _one(rng, CHAINS[:4])
    return [f"O=C(O{chain}){acid}", "[OH-].[Na+]", _one(rng, SOLVENTS), "O"], f"O=C(O){acid}"


def _grignard(rng: np.random.Generator) -> tuple[list[str], str]:
    ring, chain = _one(rng, RINGS), _one(rng, CHAINS[:5])
    return [f"O=C{ring}", f"Br[Mg]{chain}", "C1CCOC1"], f"OC({chain}){ring}"


def _deprotection(rng: np.random.Generator) -> tuple[list[str], str]:
    group = _group(rng)
    return [f"CC(C)(C)OC(=O)N{group}", "O=C(O)C(F)(F)F", "ClCCl"], f"N{group}"


RULES = (
    _esterification, _amide, _acid_chloride, _suzuki, _ether, _reductive_amination,
    _nitro_reduction, _saponification, _grignard, _deprotection,
)  # fmt: skip
