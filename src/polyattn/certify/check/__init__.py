"""verify: certificates recomputed by code that shares nothing with what makes them."""

from polyattn.certify.check.verify import objections, verify

__all__ = ["objections", "verify"]
