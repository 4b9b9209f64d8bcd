"""Pages about programs: what they are, and a run that a person can click through."""

from polyattn.report.programs.sections import program_certificate_page, program_sections

__all__ = ["program_certificate_page", "program_sections"]
