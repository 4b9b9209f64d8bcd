"""The documentation site: ``make docs`` builds it, and every warning is an error.

Pages are Markdown.  Pages that would go stale are made while the site is built: the examples with
their output (sphinx-gallery), the verbs of the command line and the reproductions (``_ext``).
"""

import shutil
import sys
from pathlib import Path

from polyattn import __version__

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

project = "polyattn"
author = "The polyattn authors"
project_copyright = "the polyattn authors, BSD-3-Clause"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.githubpages",  # .nojekyll, without which folders that begin with _ are not served
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "benchmark_scripts",
    "capacity_tables",
    "command_line",
    "outcomes",
    "paper_map",
    "plain_docstrings",
    "reproductions",
]
exclude_patterns = ["_build", "**/GALLERY_HEADER.rst", "sg_execution_times.rst", "gallery/sg_*"]

# Headings can be linked to; formulas are plain text, so dollar signs mean nothing.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]

# Blocks of docstrings are formulas; Markdown names its languages.
highlight_language = "text"

# Shapes are in the docstrings; annotations would say less in more words.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
# Shapes and types are sentences here, not names to be linked.
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "returns_style")]

# Examples run in a copy: what they write is not left among them.
EXAMPLES = HERE / "_build" / "examples"
shutil.rmtree(EXAMPLES, ignore_errors=True)
shutil.copytree(
    HERE.parent / "examples",
    EXAMPLES,
    ignore=shutil.ignore_patterns("__pycache__", "real_data", "real_layers"),
)
sphinx_gallery_conf = {
    "examples_dirs": str(EXAMPLES),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "write_computation_times": False,
    "remove_config_comments": True,
    "only_warn_on_example_error": False,
}

html_theme = "furo"
html_title = "polyattn"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/mark.svg"
html_logo = "_static/mark.svg"
# The reference has an order of its own, and the search finds names.
html_use_index = False
html_domain_indices = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b6e4f",
        "color-brand-content": "#0b6e4f",
        "color-api-name": "#0b6e4f",
        "color-api-pre-name": "#5c6675",
    },
    "dark_css_variables": {
        "color-brand-primary": "#58c79a",
        "color-brand-content": "#58c79a",
        "color-api-name": "#58c79a",
    },
}
pygments_style = "friendly"
pygments_dark_style = "nord"
