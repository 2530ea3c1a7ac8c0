"""How Sphinx builds the documentation (make docs)."""

import choicegp

project = "choicegp"
author = "the choicegp developers"
copyright = author
version = release = choicegp.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3

# api.md lists what is public; nothing is generated beside it.
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"choicegp {release}"
