"""Line coverage of the broker's folders, from the lcov report of `cargo llvm-cov`. `make coverage` runs it.

It prints a line for each folder of rust/broker/src, and with `--uncovered` the lines that no test has run. It fails if
a folder that is named with `--require` stays below `--percent`. Code of the tests themselves is not counted: test
modules, fixtures, test doubles and the simulation.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCES = "rust/broker/src"
TEST_FILE = re.compile(r"(^|[_/])tests?\.rs$|_model\w*\.rs$|(^|/)simulation(/|\.rs$)|fixtures?\.rs$|double\.rs$")
"""The files that hold only code of tests."""
TEST_ONLY = re.compile(r"(\s*)#\[cfg\((test|any\(test, .*\))\)\]")
"""The attribute of an item that only tests have."""

Hits = dict[int, int]
"""How often each counted line of a file was run."""


def read_report(lines: Iterable[str]) -> dict[Path, Hits]:
    """The hits of each source file of an lcov report."""
    found: dict[Path, Hits] = {}
    hits: Hits = {}
    for line in lines:
        kind, _, value = line.strip().partition(":")
        if kind == "SF":
            hits = found.setdefault(Path(value), {})
        elif kind == "DA":
            number, count = value.split(",")[:2]
            hits[int(number)] = hits.get(int(number), 0) + int(count)
    return found


def test_only_lines(source: str) -> set[int]:
    """The numbers of the lines that belong to items under `#[cfg(test)]`, as rustfmt lays them out."""
    found: set[int] = set()
    lines = source.splitlines()
    for start, line in enumerate(lines):
        if start + 1 in found or not (attribute := TEST_ONLY.match(line)):
            continue
        indent = attribute[1]
        for end in range(start, len(lines)):
            found.add(end + 1)
            text = lines[end]
            is_item = end > start and not text.startswith(f"{indent}#[")
            closes = text.startswith(f"{indent}}}") or text.endswith((";", "{}", ","))
            if is_item and text.startswith(indent) and not text.startswith(f"{indent} ") and closes:
                break
    return found


def counted(report: dict[Path, Hits], root: Path) -> Iterator[tuple[Path, Hits]]:
    """The files below a folder, relative to it, with their counted lines."""
    for path, hits in sorted(report.items()):
        if not path.is_relative_to(root) or TEST_FILE.search(str(path.relative_to(root))):
            continue
        skipped = test_only_lines(path.read_text(encoding="utf-8"))
        yield path.relative_to(root), {line: count for line, count in hits.items() if line not in skipped}


def ranges(numbers: Iterable[int], known: Iterable[int]) -> str:
    """Numbers as text, such as `3-5 9`; a range includes uncounted lines in between, such as comments."""
    wanted, parts, start, last = set(numbers), [], 0, 0
    for number in [*sorted(known), 0]:
        if number in wanted:
            start, last = start or number, number
        elif start:
            parts.append(f"{start}-{last}" if last > start else str(start))
            start = 0
    return " ".join(parts)


def percent(covered: int, lines: int) -> float:
    """The share of the lines that are covered, in percent."""
    return 100 * covered / lines if lines else 100.0


def main() -> int:
    """Prints the table; 1 if a required folder is below its share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="the lcov report")
    parser.add_argument("--require", nargs="+", default=[], metavar="FOLDER", help="folders that have to be covered")
    parser.add_argument("--percent", type=float, default=90.0, help="what they have to reach (default: %(default)s)")
    parser.add_argument("--uncovered", action="store_true", help="print the lines that were not run, for each file")
    options = parser.parse_args()
    root = Path.cwd() / SOURCES
    with options.report.open(encoding="utf-8") as lines:
        files = list(counted(read_report(lines), root))
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, hits in files:
        folder = path.parts[0] if len(path.parts) > 1 else "(files)"
        covered = sum(count > 0 for count in hits.values())
        for name in (folder, "all"):
            sums[name][0] += covered
            sums[name][1] += len(hits)
        if options.uncovered and covered < len(hits):
            missing = ranges((line for line, count in hits.items() if count == 0), hits)
            print(f"{path} ({covered} of {len(hits)}): {missing}")
    if unknown := set(options.require) - set(sums):
        print(f"the report has no folder {', '.join(sorted(unknown))}", file=sys.stderr)
        return 1
    print(f"{'folder':<12} {'lines':>6} {'covered':>8} {'percent':>8}")
    low = []
    for name, (covered, total) in sums.items():
        share = percent(covered, total)
        print(f"{name:<12} {total:>6} {covered:>8} {share:>8.1f}")
        if name in options.require and share < options.percent:
            low.append(f"{name} ({share:.1f} %)")
    if low:
        print(f"below {options.percent:g} %: {', '.join(low)}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
