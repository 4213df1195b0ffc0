"""The documents say what the broker does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import stompica
from stompica import _core

ROOT = Path(__file__).parent.parent
SETTINGS = {name.lower() for setting in _core.settings() for name in (setting.key, *setting.aliases)}

# Words of the form key=value in the documents that are no settings of the broker.
OTHERS = {"key", "seq", "time", "ago", "offset", "timestamp"}


@pytest.mark.parametrize(("program", "page"), [("render", "configuration.md"), ("code_map", "code-map.md")])
def test_a_rendered_page_is_up_to_date(program: str, page: str) -> None:
    """If this fails, run `make docs`."""
    spec = importlib.util.spec_from_file_location(program, ROOT / "docs" / f"{program}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == module.render()


def test_every_setting_named_in_the_documents_exists() -> None:
    """`name=value` in code, and command lines that start the broker."""
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if not page.exists():
            continue
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"`([A-Za-z_]+)=[^`\s]*`", text))
        for command in re.findall(
            r"(?:python -m stompica|^stompica|\$ stompica)((?: [A-Za-z_]+=\S+)+)", text, re.MULTILINE
        ):
            named |= set(re.findall(r" ([A-Za-z_]+)=", command))
        unknown = {name for name in named if name.lower() not in SETTINGS | OTHERS and not name.startswith("STOMPICA_")}
        assert not unknown, f"{page.name} names settings that do not exist: {sorted(unknown)}"


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    for setting in _core.settings():
        assert f"| `{setting.key}`" in page
        assert setting.doc.endswith("."), setting.key


def test_every_counter_is_documented() -> None:
    page = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    table = page.partition("| counter |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()[2:])))
    with stompica.Broker() as broker:
        assert named == set(broker.stats())


def test_every_dependency_says_why_it_is_used() -> None:
    """docs/decisions/dependencies.md names each dependency of the workspace, the fuzz targets and the Python extras."""
    page = (ROOT / "docs" / "decisions" / "dependencies.md").read_text(encoding="utf-8")
    workspace = (ROOT / "Cargo.toml").read_text(encoding="utf-8").partition("[workspace.dependencies]")[2]
    fuzz = (ROOT / "rust" / "fuzz" / "Cargo.toml").read_text(encoding="utf-8").partition("[dependencies]")[2]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    used = {name for part in (workspace, fuzz) for name in re.findall(r"^([\w-]+) = ", part.partition("\n[")[0], re.M)}
    used |= set(re.findall(r'"([\w-]+)[^"]*"', extras))
    missing = {name for name in used if not name.startswith("stompica-") and f"**{name}**" not in page}
    assert "mio" in used and "pyarrow" in used
    assert not missing, f"docs/decisions/dependencies.md does not say what these are for: {sorted(missing)}"
