"""Pages about programs: what they are, and a run that a person can click through."""

from polyattn.report.programs.sections import program_sections, write_certificate_report

__all__ = ["program_sections", "write_certificate_report"]
