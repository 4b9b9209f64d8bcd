"""Certificates for programs: on which inputs the traces determine what was learned."""

from polyattn.programs.certificates.certificate import Leaving, ProgramCertificate
from polyattn.programs.certificates.certify_traces import (
    RowSpan,
    certify_domain,
    certify_fresh,
    certify_training,
)
from polyattn.programs.certificates.prove_domain import prove_domain

__all__ = [
    "Leaving",
    "ProgramCertificate",
    "RowSpan",
    "certify_domain",
    "certify_fresh",
    "certify_training",
    "prove_domain",
]
