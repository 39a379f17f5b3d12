"""Sphinx: MyST pages, docstrings by autodoc, an executed gallery. Nothing here needs a network.

Formulas become MathML, which browsers draw themselves: pages can be read offline and without scripts.
"""

import re
import sys

from docutils import nodes
from docutils.utils.math import latex2mathml

import kalvi

# by its public name, which is not that of its file
sys.modules["kalvi.sharding"] = kalvi.sharding

project = "kalvi"
author = "the kalvi authors"
copyright = author
release = version = kalvi.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "gallery", "auto_gallery/*.ipynb", "auto_gallery/*.py"]
default_role = "code"
language = "en-GB"
nitpicky = False

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_custom_sections = [("Attributes", "returns_style")]

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"kalvi {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b5fa5",
        "color-brand-content": "#0b5fa5",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5ab4e5",
        "color-brand-content": "#5ab4e5",
    },
}

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "download_all_examples": False,
    "image_srcset": ["2x"],
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
    "reset_modules": ("matplotlib",),
    "remove_config_comments": True,
    "run_stale_examples": False,
    "parallel": False,
}


def escape_bars(app, what, name, obj, options, lines) -> None:
    """|a − b| in a docstring is a norm, not a substitution."""
    for i, line in enumerate(lines):
        if not line.startswith(" ") and "`" not in line:
            lines[i] = line.replace("|", r"\|")


def drawn(node, as_block: bool) -> str:
    """The MathML of a formula; a function's name keeps its distance from a letter."""
    tex = re.sub(r"(\\log)\s+(?=[A-Za-z])", r"\1\\,", node.astext())
    return latex2mathml.tex2mathml(tex, as_block=as_block)


def inline_formula(writer, node) -> None:
    """A formula within a line."""
    writer.body.append(drawn(node, as_block=False))
    raise nodes.SkipNode


def formula(writer, node) -> None:
    """A formula of its own, which may be wider than a phone."""
    style = "overflow-x: auto; padding: 0.4em 0"
    writer.body.append(f'<div style="{style}">{drawn(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app) -> None:
    app.connect("autodoc-process-docstring", escape_bars)
    app.add_html_math_renderer("mathml", (inline_formula, None), (formula, None))
