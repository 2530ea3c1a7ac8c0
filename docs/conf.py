"""How Sphinx builds the documentation (make docs)."""

import logging
import os
import sys
from pathlib import Path

# Scripts run within the build. Both are read when JAX is first imported, and a value given from outside wins.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1")
sys.path.insert(0, str(Path(__file__).parent))

import jax

import choicegp

logging.getLogger("alembic").setLevel(logging.WARNING)

# "fast": small sizes and no sampled intervals, for every build; "full": what a reader would run herself.
profile = os.environ.setdefault("CHOICEGP_TUTORIALS", "fast")
if profile not in ("fast", "full"):
    raise ValueError(f"CHOICEGP_TUTORIALS must be fast or full; got {profile!r}")
# Small programs take longer to compile than to run.
jax.config.update("jax_disable_most_optimizations", profile == "fast")

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
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery", "tutorials", "**/sg_execution_times.rst", "sg_execution_times.rst"]
# The page of honesty is written by its command, whose sections are one level deeper.
suppress_warnings = ["config.cache", "myst.header"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

_SIZES = {
    "fast": "This page was built with small sizes and without sampled intervals; ``make tutorials`` builds it in full.",
    "full": "This page was built in full.",
}
rst_prolog = f".. |profile| replace:: {_SIZES[profile]}\n"

sphinx_gallery_conf = {
    "examples_dirs": ["tutorials"],
    "gallery_dirs": ["auto_tutorials"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("pictures.scrape",),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 10_000,
    "remove_config_comments": True,
    "capture_repr": ("_repr_html_", "__repr__"),
    "nested_sections": False,
}

# Links to other projects need their inventories from the network, which no build may depend on: ask for them.
if os.environ.get("CHOICEGP_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
        "jax": ("https://docs.jax.dev/en/latest", None),
    }

# api.md lists what is public; nothing is generated beside it.
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_title = f"choicegp {release}"
