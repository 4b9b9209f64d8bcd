"""Certificates: do the data determine the layer?  The checker does not trust the prover."""

from polyattn.certify import domains
from polyattn.certify.certificate import Certificate
from polyattn.certify.certify import certify
from polyattn.certify.next_data import NextData
from polyattn.certify.witness import Witness

__all__ = ["Certificate", "NextData", "Witness", "certify", "domains"]
