"""Pages to look at: figures by matplotlib as inline SVG, one self-contained HTML file each."""

from polyattn.report.page import Section, fill, render_page, write_page

__all__ = ["Section", "fill", "render_page", "write_page"]
