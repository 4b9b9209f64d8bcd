"""Audits: a layer from anywhere, held against the global optimum on the same data.

>>> import polyattn as pa
>>> task = pa.data.planted(512, 20, 3, noise=0.1, random_state=0)
>>> report = pa.audit(task.layer, task.X, task.Y)
>>> report.certificate.verdict, report.consistent, report.gap < 1e-4
('identifiable', True, True)
"""

from polyattn.auditing.audit import audit
from polyattn.auditing.head_audit import HeadAudit
from polyattn.auditing.result import Audit, Implied

__all__ = ["Audit", "HeadAudit", "Implied", "audit"]
