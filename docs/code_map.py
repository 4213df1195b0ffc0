"""Renders docs/code-map.md: what each source file holds, in the words of its first line. `make docs` runs it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = Path(__file__).with_name("code-map.md")

_HEAD = """\
# Code map

<!-- Rendered by `make docs` from the first line of each source file; change it there. -->

What each source file holds, tests left out. [ARCHITECTURE.md](../ARCHITECTURE.md) says how the folders of the broker
build on each other.
"""

# Crates and packages in the order in which they build on each other.
SOURCES = ("rust/proto/src", "rust/broker/src", "rust/py/src", "python/stompica")
TESTS = re.compile(r"(^|_)tests?\.rs$|_model\w*\.rs$|(^|/)simulation/|fixtures?\.rs$|double\.rs$")


def first_sentence(path: Path) -> str:
    """What a file says of itself: the first sentence of its documentation."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        words = ast.get_docstring(ast.parse(text)) or ""
    else:
        lines = [line.removeprefix("//!").strip() for line in text.splitlines() if line.startswith("//!")]
        words = " ".join(lines)
    sentence = re.split(r"(?<=[\w)`\"]\.)\s|\s*```", words.replace("Hot path: ", ""), maxsplit=1)[0]
    sentence = re.sub(r"\[(`[^`]+`)\](?:\([^)]*\))?", r"\1", " ".join(sentence.split()))
    return sentence[:1].upper() + sentence[1:].replace("|", "\\|")


def files(source: str) -> list[Path]:
    """The source files below a folder, those of one folder together."""
    found = [path for suffix in ("*.rs", "*.py") for path in (ROOT / source).rglob(suffix)]
    kept = [path for path in found if not TESTS.search(str(path.relative_to(ROOT / source)))]
    return sorted(kept, key=lambda path: (path.parent, path.name not in ("mod.rs", "lib.rs", "__init__.py"), path.name))


def render() -> str:
    """The whole page."""
    lines = [_HEAD]
    for source in SOURCES:
        lines += [f"\n## {source}\n", "| file | holds |", "|---|---|"]
        lines += [f"| `{path.relative_to(ROOT)}` | {first_sentence(path)} |" for path in files(source)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
