"""Pages to look at: figures by matplotlib as inline SVG, one self-contained HTML file each."""

from polyattn.report.page import Page, Section, fill, render_page, write_page
from polyattn.report.write_report import make_page, write_program_report, write_report

__all__ = [
    "Page",
    "Section",
    "fill",
    "make_page",
    "render_page",
    "write_page",
    "write_program_report",
    "write_report",
]
