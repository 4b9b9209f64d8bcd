"""Pages to look at: figures by matplotlib as inline SVG, one self-contained HTML file each."""

from polyattn.report.page import Page, Section, fill, render_page, write_page
from polyattn.report.plots import make_plot
from polyattn.report.write_report import make_page, write_program_report, write_report

__all__ = [
    "Page",
    "Section",
    "fill",
    "make_page",
    "make_plot",
    "render_page",
    "write_page",
    "write_program_report",
    "write_report",
]
