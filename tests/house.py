"""The house as its imports draw it: packages, floors, arrows. `python tests/house.py` (`make
house`) puts the picture into docs/extend.md.
"""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "xlingual_nb"
FLOORS = (
    ("errors",),
    ("runs", "papers"),
    ("text", "microworld"),
    ("models",),
    ("measures",),
    ("tasks",),
    ("experiments",),
    ("report",),
    ("api", "cli"),
)
LEVEL = {part: level for level, floor in enumerate(FLOORS) for part in floor}
BEGIN, END = (
    "<!-- the house: drawn from the imports by `make house` -->\n",
    "<!-- end of the house -->\n",
)


@cache
def modules() -> dict[str, Path]:
    """Dotted name (without the package) of every module and its file; a package that exports
    something itself goes by its own name.
    """
    files = sorted(
        p
        for p in PACKAGE.rglob("*.py")
        if (p.name != "_modidx.py" and p.parent != PACKAGE) or p.stem in ("errors", "cli")
    )
    named = {
        ".".join(p.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): p
        for p in files
    }
    return {
        name: p
        for name, p in named.items()
        if p.name != "__init__.py" or p.read_text(encoding="utf-8").strip()
    }


@cache
def imports(path: Path, everywhere: bool = True) -> set[str]:
    """The dotted names that a file of this package imports from it, anywhere in it or only where it
    is loaded; no functions among them.
    """
    package, known, found = (
        ["xlingual_nb", *path.relative_to(PACKAGE).parent.parts],
        modules(),
        set(),
    )
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            names = [a.name.split(".") for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            names = [[*base, *(node.module or "").split("."), a.name] for a in node.names]
        else:
            continue
        for name in ([part for part in n if part] for n in names):
            if name[0] != "xlingual_nb":
                continue
            whole = [".".join(name[1:n]) for n in range(len(name), 1, -1)]
            found.add(next((w for w in whole if w in known), whole[-1] if whole else ""))
    return found - {""}


def part(name: str) -> str:
    return name.split(".")[0]


def notebook(name: str) -> str:
    """The notebook that a module is exported from, without its folder and ending."""
    return re.search(
        r"File to edit: \S*?(\w+)\.ipynb", modules()[name].read_text(encoding="utf-8")
    )[1]


def arrows() -> set[tuple[str, str]]:
    """(package, package that it imports)."""
    pairs = {
        (part(name), part(other)) for name, path in modules().items() for other in imports(path)
    }
    return {(a, b) for a, b in pairs if a != b}


def reached(start: str, graph: set) -> set[str]:
    """The packages that one leads to."""
    found, todo = set(), [start]
    while todo:
        at = todo.pop()
        new = {b for a, b in graph if a == at} - found
        found |= new
        todo += new
    return found


def needed(graph: set) -> set[tuple[str, str]]:
    """Without the arrows that follow from others, the longest first: where a leads to b and b to c,
    none from a to c.
    """
    kept = set(graph)
    for a, b in sorted(graph, key=lambda pair: (LEVEL[pair[1]] - LEVEL[pair[0]], pair)):
        if b in reached(a, kept - {(a, b)}):
            kept.remove((a, b))
    return kept


def box(name: str) -> str:
    """A package and its modules, five a line."""
    inside = sorted({m.split(".")[1] for m in modules() if m.startswith(name + ".")})
    lines = [f"**{name}**", *(" · ".join(inside[i : i + 5]) for i in range(0, len(inside), 5))]
    return f'    {name}["`' + "\n        ".join(lines) + '`"]'


def picture() -> str:
    """The house in Mermaid, which code hosts draw: the roof above, an arrow from whoever imports to
    what is imported.
    """
    order = [name for floor in reversed(FLOORS) for name in floor]
    lines = [
        f"    {a} --> {b}"
        for a, b in sorted(needed(arrows()), key=lambda pair: [order.index(name) for name in pair])
    ]
    return "\n".join(["```mermaid", "flowchart TD", *map(box, order), *lines, "```", ""])


def standing(text: str) -> str:
    """The picture that stands in a page, between the two marks."""
    return text.split(BEGIN)[1].split(END)[0]


if __name__ == "__main__":
    page = ROOT / "docs/extend.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(BEGIN + standing(text), BEGIN + picture()), encoding="utf-8")
