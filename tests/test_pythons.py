"""A code fingerprint is the same under every Python that reads the code, so that reference results
and stores made under one are up to date under another. A bare Python imports this file
(`test_other_pythons.py`).
"""

import ast
import hashlib
import json
from pathlib import Path

from xlingual_nb.runs.code_names import Marker, normalised_pieces
from xlingual_nb.runs.call_graph import MARK, Sources, resolve_mark

ROOT = Path(__file__).resolve().parents[1]

# what parsers and printers of 3.11 and later treat differently, and most kinds of nodes
SAMPLE = r'''
quoted = f"{table['a']} it's {b!r:>{width}} {{}} {x=}" 'end' f'{y:.2f}' if WIDTH else b"\x00"

numbers = 1_000_000_007, 0.1 + 2e-5j, -0.0, ..., None, True, "µ — \u00ad\n\t'\""

@decorated(by=quoted)
class Box(Base, metaclass=Meta):
    """A docstring
        with indents."""
    size: int = 3
    names: ClassVar[list[str]] = ["a", *others]

    async def read(self, first, /, second=1, *rest, only: int = 2, **more) -> "Box":
        async with open(first) as file, lock:
            async for line in file:
                yield await line[1:2, ::3]

def walk(tree, *, depth=0):
    global SEEN
    try:
        match tree:
            case {"k": value, **rest} if (found := value): return found, rest
            case Box(size=0) | [1, *_]: pass
    except* (OSError, ValueError) as group:
        raise KeyError(f"{tree} is wrong") from None
    else:
        while depth: depth -= 1; continue
    finally:
        del tree[depth]
    assert 0 < depth <= 1 != 2, "no message"
    return {k: v for k, v in tree if k not in SEEN}, lambda *a, b=1: (a, b), {*tree}, not depth
'''
RECORDED = {
    "quoted": "30989b5ffc47de5f",
    "numbers": "369b0ca3f9b9375c",
    "Box": "f106c1cf0d273c9a",
    "walk": "cea38065d9ad95fa",
}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sample_fingerprints() -> dict[str, str]:
    """Of each statement of the sample the normalised text, hashed; names in capitals are the module's."""
    fingerprints = {}
    for node in ast.parse(SAMPLE).body:
        name = getattr(node, "name", None) or node.targets[0].id
        texts = normalised_pieces(node, Marker("sample", "", str.isupper))
        fingerprints[name] = digest("\n".join(text for text, _ in texts))
    return fingerprints


def package_fingerprints() -> dict[str, str]:
    """Of each definition of the package the normalised text and what its marks stand for, hashed: all
    that fingerprints of stages are made of. Nothing is imported but what reads the code.
    """
    sources, fingerprints = Sources(), {}
    for file in sorted((ROOT / "xlingual_nb").rglob("*.py")):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        table = sources.module(name)
        for definition in table.statements:
            text = "\n".join(text for text, _ in table.pieces_of(definition))
            meanings = {m: sorted(map(str, resolve_mark(m, sources))) for m in MARK.findall(text)}
            everything = json.dumps([text, meanings], sort_keys=True)
            fingerprints[f"{name}.{definition}"] = digest(everything)
    return fingerprints


def test_the_sample_has_the_recorded_fingerprints():
    """Whichever Python runs this."""
    assert sample_fingerprints() == RECORDED
