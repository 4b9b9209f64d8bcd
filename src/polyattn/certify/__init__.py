"""Certificates: whether the data determine the layer.

    certify.py    the entry point: evidence, verdict, certificate
    evidence.py   the data or their sums, and what is computed from them once
    decide.py     which method reaches the verdict
    domains/      where layers have to agree
    exact/        rank and null vectors modulo a prime, checked in integers
    verified/     floating point with proved rounding bounds
    document.py   certificates as JSON
    check/        verify: every claim recomputed, by code that shares nothing with the above
    independent_entries/   what holds before there are data: the population of independent entries

What a certificate can do further: ``witness.py``, ``bounds.py``, ``next_data.py``.
"""

from polyattn.certify import domains
from polyattn.certify.certificate import Certificate
from polyattn.certify.certify import certify
from polyattn.certify.independent_entries import IndependentEntries, independent_entries
from polyattn.certify.next_data import NextData
from polyattn.certify.witness import Witness

__all__ = [
    "Certificate",
    "IndependentEntries",
    "NextData",
    "Witness",
    "certify",
    "domains",
    "independent_entries",
]
