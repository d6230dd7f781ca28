"""The documentation's site: ``make -C docs html`` builds it into ``docs/_build/html``.

Pages are Markdown (MyST), the API's are generated from the docstrings, and nothing is fetched
from outside when a page is read: MathJax and the theme's fonts come with the packages of the
extra ``docs``.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from sphinx.util.images import get_image_size

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

sys.path.insert(0, str(HERE))

import gallery  # noqa: E402

import olsq  # noqa: E402

gallery.write()

project = "olsq"
author = "olsq developers"
copyright = "olsq developers, Apache-2.0"
version = release = olsq.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "img/README.md"]
templates_path = ["_templates"]
suppress_warnings: list[str] = []
nitpicky = False

# Markdown
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# The API, from the docstrings
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say types and shapes
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

# Where other libraries' names are explained.  Their inventories are fetched while building, and
# only where that is asked for: a build needs no network.
if os.environ.get("OLSQ_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "jax": ("https://docs.jax.dev/en/latest", None),
    }

# Looks
html_theme = "pydata_sphinx_theme"
html_title = "olsq"
html_static_path = ["_static"]
html_css_files = ["olsq.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "header_links_before_dropdown": 8,
    "navbar_end": ["theme-switcher"],
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "show_prev_next": True,
}
html_sidebars = {"index": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
pygments_style = "a11y-high-contrast-light"


# MathJax, from the package that carries it instead of from a server.
mathjax_path = "mathjax/tex-chtml.js"
MATHJAX = Path(find_spec("sphinx-mathjax-offline").submodule_search_locations[0]) / "static/mathjax"
NEEDED = ("tex-chtml.js", "output/chtml/fonts")


def copy_mathjax(app, error):
    """Put MathJax and its fonts beside the pages."""
    if error is None:
        for name in NEEDED:
            source, target = MATHJAX / name, Path(app.outdir, "_static", "mathjax", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy(source, target)


BACK = re.compile(r'(class="viewcode-back" href=")([^"#]*)#([^"]*)(")')


def mend_links_of_sources(app, error):
    """Let pages of source code lead to the page of a name where that has no such anchor.

    Sphinx writes the anchors of all names in a source file with one module's name, but names of one
    file may be documented as those of several modules.
    """
    if error is not None or not Path(app.outdir, "_modules").exists():
        return
    for source in Path(app.outdir, "_modules").rglob("*.html"):

        def link(found, folder=source.parent):
            page = folder / found[2]
            if page.exists() and f'id="{found[3]}"' not in page.read_text(encoding="utf-8"):
                return f"{found[1]}{found[2]}{found[4]}"
            return found[0]

        text = source.read_text(encoding="utf-8")
        mended = BACK.sub(link, text)
        if mended != text:
            source.write_text(mended, encoding="utf-8")


WIDE = 1100  # pixels; one panel has some 750


def mark_wide_figures(app, doctree):
    """Give figures of several columns the class that the style sheet lets be wide."""
    for node in doctree.findall(nodes.image):
        source = Path(app.srcdir, node.get("candidates", {}).get("*", node["uri"]))
        size = get_image_size(source) if source.exists() else None
        if size and size[0] > WIDE:
            node["classes"].append("wide")


NUMBER = re.compile(r"([-+]?\d[\d.]*e[-+]\d+)")


def keep_numbers_whole(app, doctree):
    """Keep 9e-15 in one line: browsers break a table's cells at a hyphen."""
    for text in list(doctree.findall(nodes.Text)):
        pieces = NUMBER.split(text.astext())
        if len(pieces) > 1 and isinstance(text.parent.parent, nodes.entry):
            kinds = (nodes.Text, lambda piece: nodes.inline(piece, piece, classes=["number"]))
            new = [kinds[i % 2](piece) for i, piece in enumerate(pieces) if piece]
            text.parent.replace(text, new)


MANY = 8  # columns; tables with more have smaller letters


def mark_tables_of_many_columns(app, doctree):
    """Give tables of many columns the class that the style sheet makes dense."""
    for node in doctree.findall(nodes.tgroup):
        if node["cols"] > MANY:
            node.parent["classes"].append("many-columns")


def has_another_page(app, what, name, thing, skip, options):
    """Leave out members that are described elsewhere, or that are no part of the interface.

    These are methods inherited from river and the like, and classes that a class refers to under
    another name: autodoc would show each as "alias of".
    """
    module = (getattr(thing, "__module__", None) or "").partition(".")[0]
    foreign = module in ("river", "sklearn", "equinox", "flax")
    alias = isinstance(thing, type) and thing.__name__ != name.rpartition(".")[2]
    return True if foreign or alias else None


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", has_another_page)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", mend_links_of_sources)
    app.connect("doctree-read", mark_wide_figures)
    app.connect("doctree-read", keep_numbers_whole)
    app.connect("doctree-read", mark_tables_of_many_columns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
