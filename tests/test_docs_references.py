"""A reference to a page, section, numbered item, decision, heading or file resolves inside this repository."""

from __future__ import annotations

import functools
import re
import subprocess
from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from os.path import normpath
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
TEXT = {".md", ".rs", ".py", ".pyi", ".toml", ".mjs", ".js", ".java", ".sh", ".yml", ".html", ".Dockerfile", ""}
# Recorded data, licences and lists of versions: nobody writes references there.
LEFT_OUT = re.compile(r"bench/results/|LICENSE|.*(\.lock|-lock\.json|/corpus/|/sample/)|tests/test_docs_references\.py")

# Files that a page tells the reader to write, or that a program of this project writes.
WRITTEN_BY_USERS = {"chat.py", "chat.html", "jobs.py", "worker.py", "OUT/report.html"}

NUMBER_LIST = r"\d+(?:(?:, and |, or |, | and | or | to )\d+)*"
# `docs/behaviour.md, sections 5 to 7`; a line of a comment may end within it.
NUMBERED = re.compile(rf"([\w/.-]*\w\.md),? (?:(?:sections?|items?) )?({NUMBER_LIST})(?![\w%]|\.\d)")
PAGE = re.compile(r"(?<![\w/.*{}-])([\w.-][\w/.-]*\.md)\b")
SECTION = re.compile(r"\b[Ss]ections? \d")
DECISION = re.compile(rf"\b[Dd]ecisions? ({NUMBER_LIST})")
FORMER = re.compile(r"\b(?:PRODUCT|PROTOCOL|DESIGN|WORKLOADS|STYLE)(?:\.md\b|'s\b|,? sections? \d| \d)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(
    r"`((?:[\w.-]+/)*[\w.-]+\.(?:rs|py|toml|mjs|html|sh|yml|Dockerfile))`|(?<![\w/.*-])((?:[\w-]+/)*test_\w+\.py)"
)
FOLDER = re.compile(r"`((?:rust|tests|docs|bench|python|examples|docker)/[\w./-]*)`")
ERROR_CODE = re.compile(r"\bE-[A-Z0-9]+(?:-[A-Z0-9]+)*\b(?!…)")


@functools.cache
def tracked() -> frozenset[str]:
    """The files under version control, and new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return frozenset(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


@functools.cache
def folders() -> frozenset[str]:
    return frozenset(str(parent) for name in tracked() for parent in Path(name).parents)


@functools.cache
def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def pages(ending: str = "") -> tuple[str, ...]:
    """The files that references are looked for in."""
    return tuple(
        name
        for name in sorted(tracked())
        if name.endswith(ending) and Path(name).suffix in TEXT and not LEFT_OUT.match(name) and "\0" not in read(name)
    )


class Flat(NamedTuple):
    """A file as one line, without the marks of comments: a reference may go over the end of a line."""

    text: str
    starts: list[int]
    """Where each line of the file begins in `text`."""


@functools.cache
def flat(name: str) -> Flat:
    lines = [re.sub(r"^\s*(?://[/!]?|#)?\s*", "", line) + " " for line in read(name).splitlines()]
    return Flat("".join(lines), [0, *accumulate(len(line) for line in lines)])


def found(pattern: re.Pattern[str], ending: str = "") -> Iterator[tuple[str, re.Match[str]]]:
    """Every reference of a kind, with the file that it is in."""
    for name in pages(ending):
        for match in pattern.finditer(flat(name).text):
            yield name, match


def where(name: str, match: re.Match[str]) -> str:
    return f"{name}:{bisect(flat(name).starts, match.start())}"


def numbers(text: str) -> set[int]:
    """The numbers that a list such as `1, 3 to 5 and 8` names."""
    named: set[int] = set()
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", text):
        named |= set(range(int(first), int(last or first) + 1))
    return named


def page(name: str, citing: str) -> str | None:
    """The tracked file that a page's name means: from the top of the repository, beside the citing file, in docs."""
    candidates = [name, normpath(Path(citing).parent / name), f"docs/{name}", f"docs/decisions/{name}"]
    return next((candidate for candidate in candidates if candidate in tracked()), None)


@functools.cache
def numbered(name: str) -> frozenset[int]:
    """The numbers of a page's sections and items."""
    return frozenset(int(number) for number in re.findall(r"^(?:#+ )?(\d+)\. ", read(name), re.MULTILINE))


@functools.cache
def anchors(name: str) -> frozenset[str]:
    """The headings of a page as GitHub makes anchors of them."""
    prose = re.sub(r"^```.*?^```", "", read(name), flags=re.MULTILINE | re.DOTALL)
    made: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        count = sum(1 for other in made if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other))
        made.append(f"{slug}-{count}" if count else slug)
    return frozenset(made)


def wrong_links(name: str) -> Iterator[str]:
    """The relative links of a page that lead nowhere."""
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", read(name), flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = normpath(Path(name).parent / path) if path else name
        if file not in tracked() and file not in folders():
            yield f"{name}: ({target}): no such file"
        elif anchor and anchor not in anchors(file):
            yield f"{name}: ({target}): no such heading"


def test_relative_links_lead_to_files_and_headings() -> None:
    wrong = [fault for name in pages(".md") for fault in wrong_links(name)]
    assert not wrong, "\n".join(wrong)


def test_pages_that_are_named_exist() -> None:
    wrong = [f"{where(name, match)}: {match[1]}" for name, match in found(PAGE) if not page(match[1], name)]
    assert not wrong, "\n".join(wrong)


def test_numbered_sections_and_items_exist() -> None:
    wrong = []
    for name, match in found(NUMBERED):
        cited = page(match[1], name)
        missing = numbers(match[2]) - (numbered(cited) if cited else frozenset())
        if missing:
            wrong.append(f"{where(name, match)}: {match[1]} has no {sorted(missing)}")
    assert not wrong, "\n".join(wrong)


def test_a_section_says_of_which_page_or_specification_it_is() -> None:
    """A page or an RFC is named shortly before it, or in the first lines of the file."""
    wrong = []
    for name, match in found(SECTION):
        before = flat(name).text[max(0, match.start() - 200) : match.start()]
        if not re.search(r"\.md\b|\bRFC \d", flat(name).text[:400] + before):
            wrong.append(f"{where(name, match)}: {match[0]}")
    assert not wrong, "\n".join(wrong)


def test_decisions_that_are_named_exist() -> None:
    existing = {int(Path(name).name[:4]) for name in tracked() if re.match(r"docs/decisions/\d{4}-", name)}
    wrong = [f"{where(name, match)}: {match[0]}" for name, match in found(DECISION) if numbers(match[1]) - existing]
    assert existing and not wrong, "\n".join(wrong)


def test_no_reference_to_a_page_outside_the_repository() -> None:
    wrong = [f"{where(name, match)}: {match[0]}" for name, match in found(FORMER)]
    assert not wrong, "\n".join(wrong)


@functools.cache
def endings() -> frozenset[str]:
    """Every tracked path from any of its folders on."""
    return frozenset("/".join(Path(name).parts[start:]) for name in tracked() for start in range(len(Path(name).parts)))


def test_source_files_that_pages_and_comments_name_exist() -> None:
    """A path from any folder on, in backquotes or that of a test; on a page, a folder in backquotes from the top."""
    wrong = [
        f"{where(name, match)}: {match[1] or match[2]}"
        for name, match in found(FILE)
        if (match[1] or match[2]) not in endings() | WRITTEN_BY_USERS
    ]
    wrong += [
        f"{where(name, match)}: {match[1]}"
        for name, match in found(FOLDER, ".md")
        if match[1].rstrip("/") not in folders() | tracked()
    ]
    assert not wrong, "\n".join(wrong)


def test_error_codes_that_pages_name_exist() -> None:
    defined = set(re.findall(r'"(E-[A-Z0-9-]+)"', read("rust/proto/src/error.rs")))
    wrong = [f"{where(name, match)}: {match[0]}" for name, match in found(ERROR_CODE, ".md") if match[0] not in defined]
    assert defined and not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (NUMBERED, "(docs/behaviour.md, sections 5 to 7)", "5 to 7"),
        (NUMBERED, "docs/specification.md, items 1, 3 and 8.", "1, 3 and 8"),
        (NUMBERED, "behaviour.md 9", "9"),
        (DECISION, "see decisions 16 to 20", "16 to 20"),
        (PAGE, "as in docs/nowhere.md.", "docs/nowhere.md"),
    ],
)
def test_references_are_recognised(pattern: re.Pattern[str], text: str, expected: str) -> None:
    match = pattern.search(text)
    assert match is not None and match[match.lastindex or 0] == expected


def test_what_is_missing_is_noticed() -> None:
    assert numbers("1, 3 to 5 and 8") == {1, 3, 4, 5, 8}
    assert numbered("docs/specification.md") == set(range(1, 75))
    assert numbered("docs/behaviour.md") == set(range(1, 12))
    assert page("nowhere.md", "README.md") is None and page("delivery.md", "docs/errors.md") == "docs/delivery.md"
    assert "what-a-receipt-promises" in anchors("README.md") and "nothing" not in anchors("README.md")
    assert (
        FORMER.search("PRODUCT.md, section 5") and FORMER.search("PROTOCOL 24") and not FORMER.search("PROTOCOL HOST")
    )
