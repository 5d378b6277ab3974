"""Settings of Sphinx. `xlingual report` copies this file beside the sources that it writes."""

import gc
import re
from functools import cache
from importlib import import_module
from typing import Annotated, get_origin

from jinja2.sandbox import SandboxedEnvironment
from numpydoc import docscrape_sphinx
from sphinx.domains.python import PythonDomain

import xlingual_nb

project = "xlingual_nb"
author = "The xlingual_nb authors"
version = release = xlingual_nb.__version__
copyright = f"2026, {author}; Apache License 2.0; version {version}"

extensions = [
    "myst_nb",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}
exclude_patterns = ["_static"]
default_role = "py:obj"

# pages are shown as committed: nothing is executed
nb_execution_mode = "off"
nb_merge_streams = True
nb_ipywidgets_js = {}
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type", "mystnb.lexer", "myst.header", "docutils"]

autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Of pydata-sphinx-theme, sphinx-book-theme and furo the first: kinds of pages stand in a bar at the top, not hundreds
# of pages in one list at the side, and the width is left to tables.
html_theme = "pydata_sphinx_theme"
html_title = "xlingual_nb"
html_static_path = ["_static"]
html_extra_path = ["../extra"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = (
    False  # it reads the pages, which a browser does not from the file system
)
html_sidebars = {
    "index": [],
    "runs": [],
    "missing": [],
    "docs/start": [],
    "docs/glossary": [],
    "nbs/lib/*": [],
    "papers/*": [],
    "yours/*": [],
    "choices/*": [],
    "claims/*": [],
    "tables/*": [],
    "search": [],
}
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "xlingual_nb"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "navigation_depth": 2,
    "show_nav_level": 1,
    "navigation_with_keys": True,
    "back_to_top_button": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "footer_start": ["copyright"],
    "footer_end": [],
}


# ---- docstrings are plain text with `names`; what reStructuredText takes for markup of its own is escaped

MARKUP = re.compile(r"(?<![\w*`])\*{1,2}(?=\w)|(?<![\w|])\|{1,2}(?=\w)|(?<=\w)_(?![\w`])")


def escaped(match: re.Match) -> str:
    """Each sign with a backslash before it."""
    return "".join("\\" + sign for sign in match[0])


def escape_markup(app, what, name, obj, options, lines: list[str]) -> None:
    """Escape stars, bars and final underscores outside of code."""
    for at, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        parts = re.split(r"(`+[^`]*`+)", line)
        parts[::2] = [MARKUP.sub(escaped, part) for part in parts[::2]]
        lines[at] = re.sub(r"(`[^`]+`)(?==)", r"\1\\ ", "".join(parts))


def without_options(app, obj, bound_method) -> None:
    """Show the types of a command's arguments without typer's objects, which have no text."""
    annotations = getattr(obj, "__annotations__", {})
    for name, annotation in annotations.items():
        if get_origin(annotation) is Annotated:
            annotations[name] = annotation.__origin__


# ---- what makes the build fast

ENVIRONMENTS: list[SandboxedEnvironment] = []


def one_environment(loader) -> SandboxedEnvironment:
    """The environment of all templates of numpydoc, which would compile one for every docstring."""
    if not ENVIRONMENTS:
        ENVIRONMENTS.append(SandboxedEnvironment(loader=loader))
    return ENVIRONMENTS[0]


docscrape_sphinx.SandboxedEnvironment = one_environment


@cache
def last_names(domain: PythonDomain, n_objects: int) -> set[str]:
    """The last parts of the names of all documented objects, of which there are so many."""
    return {name.rpartition(".")[2] for name in domain.objects}


def find_documented(self, env, modname, classname, name, *options):
    """As Sphinx finds an object, which looks through thousands of names for each word in backquotes;
    most of these, such as names of arguments, are no object's.
    """
    if name.removesuffix("()").rpartition(".")[2] not in last_names(self, len(self.objects)):
        return []
    return find_object(self, env, modname, classname, name, *options)


find_object = PythonDomain.find_obj
PythonDomain.find_obj = find_documented


def import_documented(app, env, docnames: list[str]) -> None:
    """Import the modules whose pages will be read, so that the processes that Sphinx starts have them."""
    for name in docnames:
        if name.startswith("api/modules/"):
            import_module(f"xlingual_nb.{name.removeprefix('api/modules/')}")
    gc.freeze()


def setup(app) -> None:
    """Called by Sphinx; markup is escaped before numpydoc reads the docstrings."""
    gc.set_threshold(
        500_000, 50, 50
    )  # trees of documents are many small objects, and few are garbage
    app.connect("env-before-read-docs", import_documented)
    app.connect("autodoc-before-process-signature", without_options)
    app.connect("autodoc-process-docstring", escape_markup, priority=100)
