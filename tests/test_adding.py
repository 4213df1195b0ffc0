"""The recipes of docs/adding.md name files that exist, and in each step names that those files hold."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
BROKER = "rust/broker/src"
PATH = re.compile(r"(?:[\w.-]+/)+(?:[\w.-]+\.\w+)?|[\w-]+\.(?:rs|py|md)")
# What a recipe adds, and what stands for something.
ADDED = re.compile(r"max_id_size|no-dead-letter|retained|PING|Ping|store=NAME|NAME")
# Words of commands, of the protocol and of values.
WORDS = {"impl", "for", "match", "Err", "--help", "content-length", "persistent", "store=memory", "store", "memory"}


def recipes() -> dict[str, list[str]]:
    """The paragraphs and steps of each recipe, without code blocks; what stands indented belongs to its step."""
    page = (ROOT / "docs/adding.md").read_text(encoding="utf-8")
    page = re.sub(r"^ *```.*?^ *```\n", "", page, flags=re.MULTILINE | re.DOTALL)
    _, *parts = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)
    return {name: re.split(r"\n\n(?! )", text.strip()) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", re.sub(r"\s+", " ", text))


def found(path: str) -> Path | None:
    """The file or folder that a path means: from the top, or below the broker's sources."""
    return next((ROOT / top / path for top in ("", BROKER) if (ROOT / top / path).exists()), None)


@cache
def sources() -> str:
    folders = ("rust", "python", "tests")
    files = [file for folder in folders for ending in ("rs", "py") for file in (ROOT / folder).rglob(f"*.{ending}")]
    return "\n".join(file.read_text(encoding="utf-8") for file in files if "node_modules" not in file.parts)


def steps() -> list[tuple[str, str, list[str], list[str]]]:
    """Each step: its recipe, its text, and the paths and the names in it."""
    found = []
    for recipe, texts in recipes().items():
        for text in texts:
            words = quoted(text)
            paths = [word for word in words if PATH.fullmatch(word)]
            found.append((recipe, text, paths, [word for word in words if word not in paths]))
    return found


def test_there_is_a_recipe_for_each_kind() -> None:
    assert list(recipes()) == ["A setting", "A SEND header", "A DIAG query", "A command", "A store"]


def test_files_of_recipes_exist() -> None:
    missing = [f"{recipe}: {path}" for recipe, _, paths, _ in steps() for path in paths if not found(path)]
    assert not missing
    assert sum(len(paths) for _, _, paths, _ in steps()) > 50


def test_names_of_a_step_stand_in_the_files_of_the_step() -> None:
    wrong = []
    for recipe, _, paths, names in steps():
        files = [file for file in map(found, paths) if file and file.is_file()]
        text = "\n".join(file.read_text(encoding="utf-8") for file in files) or sources()
        for name in names:
            if name in WORDS or ADDED.search(name):
                continue
            parts = [part for part in re.findall(r"[\w-]+", name) if part not in WORDS]
            wrong += [f"{recipe}: {name} in {paths}" for part in parts if not re.search(rf"\b{part}\b", text)]
    assert not wrong
