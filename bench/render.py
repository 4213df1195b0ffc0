"""Writes the figures of recorded results into bench/README.md, between two markers. No figure is typed by hand.

.venv/bin/python bench/render.py FILE… [--into bench/README.md]

A FILE is the results.jsonl of a campaign of `stompica bench run`. Of several results for a variant, the latest is used.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stompica.bench import BenchError
from stompica.bench.figures import GENERATOR_BUSY, LEAST_BY_MOST, medians
from stompica.bench.results import BROKER, Result, read

BEGIN = "<!-- figures: begin -->"
END = "<!-- figures: end -->"
NONE = "–"

RELAY_PER_S_MIN = {"tcp": 15e6, "ws": 10e6}
"""Rate of the ideal relay below which a ratio to it says little."""


def main(arguments: Sequence[str]) -> int:
    """Renders; exit status 1, with one line, if that is not possible."""
    parser = argparse.ArgumentParser("bench/render.py", description="Writes the figures of results into a document.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--into", type=Path, default=Path(__file__).parent / "README.md", metavar="DOCUMENT")
    options = parser.parse_args(arguments)
    try:
        render(options.files, options.into)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def render(files: Sequence[Path], document: Path) -> None:
    """Replaces the text between the markers of a document."""
    latest: dict[tuple[str, str, int, str], tuple[Result, Path]] = {}
    for file in files:
        for result in read(file):
            key = _key(result)
            if not result.quick and (key not in latest or latest[key][0].started_unix_s <= result.started_unix_s):
                latest[key] = (result, file)
    chosen = [latest[key] for key in sorted(latest)]
    results = [result for result, _ in chosen]
    text = f"{BEGIN}\n{origin(results, [file for _, file in chosen])}\n{tables(results)}{END}"
    old = document.read_text(encoding="utf-8")
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"{document}: no markers {BEGIN} … {END}")
    document.write_text(before + text + after, encoding="utf-8")


def _key(result: Result) -> tuple[str, str, int, str]:
    return result.workload["name"], result.transport, result.writers or 0, " ".join([*result.settings, result.target])


def origin(results: Sequence[Result], files: Iterable[Path]) -> str:
    """The line that says where the figures come from."""
    if not results:
        return "No results yet.\n"
    last = max(results, key=lambda result: result.started_unix_s)
    commits = sorted({result.commit + (" with changes" if result.changed else "") for result in results})
    versions = ", ".join(filter(None, (last.versions.get(name) for name in ("broker", "python"))))
    day = time.strftime("%Y-%m-%d", time.gmtime(last.started_unix_s))
    machine = f"{last.machine['cores']} cores of {last.machine['cpu']}, Linux {last.machine['kernel']}"
    sources = ", ".join(sorted({str(file) for file in files}))
    return f"{machine}; {versions}; commit {', '.join(commits)}; last measured {day} (UTC). From {sources}.\n"


def tables(results: Sequence[Result]) -> str:
    """A table for each kind of figure in the results."""
    made = []
    for kinds, columns, row in TABLES:
        head = columns.split("|")
        rows = [_row(result, head, row) for result in results if _kind(result) in kinds]
        if rows:
            made.append(markdown([head[0], "over", "writers", *head[1:]], rows))
    return "\n".join(made)


def _kind(result: Result) -> str:
    """The kind of its workload; a backlog on disk is shown otherwise than one in memory."""
    kind: str = result.workload["kind"]
    return "stored" if kind == "backlog" and result.workload.get("persistent") else kind


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ["".join(f"| {cell:<{width}} " for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    lines.insert(1, "".join(f"|{'-' * (width + 2)}" for width in widths))
    return "".join(f"{line}|\n" for line in lines)


def _row(result: Result, head: Sequence[str], cells: Callable[[Result], list[str]]) -> list[str]:
    name = result.workload["name"] + (" (quick)" if result.quick else "")
    writers = str(result.writers or "default") if result.target == BROKER else f"({result.target})"
    fault = next((run["fault"] for run in result.runs if run.get("fault")), None if result.runs else "no repetition")
    if fault is not None:
        shown = [f"**failed**: {fault}", *[NONE] * (len(head) - 3), runs(result)]
    else:
        shown = [*cells(result), runs(result)]
    return [name, result.transport, writers, *shown]


def _throughput(result: Result) -> list[str]:
    relay = (result.relay or {}).get("runs") or []
    own, best = _median(result.runs, "deliveries_per_s"), _median(relay, "deliveries_per_s")
    ratio = NONE
    if own and best:
        ratio = f"{own / best:.2f}" if best >= RELAY_PER_S_MIN[result.transport] else f"({own / best:.2f})"
    each = micros(_median(result.runs, "cpu_us_per_delivery"))
    return [rate(own), each, rate(best), ratio, generator(result), mebibytes(result)]


def _queue(result: Result) -> list[str]:
    own, each = _median(result.runs, "deliveries_per_s"), _median(result.runs, "cpu_us_per_delivery")
    wanted = result.workload.get("wanted") or {}
    least, most = wanted.get("per_s"), wanted.get("cpu_us")
    asked = [verdict(f"≥ {rate(least)}", (own or 0) >= least)] if least else []
    asked += [verdict(f"≤ {most} µs", each <= most)] if most and each is not None else []
    even = medians(result.runs).get(LEAST_BY_MOST)
    relay = rate(_median((result.relay or {}).get("runs") or [], "deliveries_per_s"))
    shared = NONE if even is None else f"{even:.2f}"
    return [rate(own), micros(each), ", ".join(asked) or NONE, relay, shared, generator(result), mebibytes(result)]


def _held(result: Result) -> list[str]:
    found = medians(result.runs)
    over, most = found["resident_bytes_each_over_frame"], (result.workload.get("wanted") or {}).get("bytes")
    each = [f"{found[name]:.0f}" for name in ("held", "frame_bytes", "resident_bytes_each")]
    asked = verdict(f"≤ {most:.0f}", over <= most) if most else NONE
    return [*each, f"{over:.0f}", asked, f"{found['resident_bytes_each_after']:.0f}", mebibytes(result)]


def _persist(result: Result) -> list[str]:
    found, per_s = medians(result.runs), _median(result.runs, "deliveries_per_s")
    least = (result.workload.get("wanted") or {}).get("per_s")
    asked = verdict(f"≥ {rate(least)}", (per_s or 0) >= least) if least and result.target == BROKER else NONE
    latencies = [statistics.median(run["window_latency"]["from_batch"][f"{name}_us"] for run in result.runs)
                 for name in ("p50", "p99")]  # fmt: skip
    return [
        rate(per_s),
        micros(_median(result.runs, "cpu_us_per_delivery")),
        asked,
        " / ".join(f"{value:.0f}" for value in latencies),
        *_log(found),
        generator(result),
        mebibytes(result),
    ]


def _persist_rate(result: Result) -> list[str]:
    found = medians(result.runs)

    def bare(name: str) -> str:
        return f"{found[name]:.0f}" if name in found else NONE

    latencies = [f"{statistics.median(run['latency']['from_intended'][f'{name}_us'] for run in result.runs):.0f}"
                 for name in ("p50", "p99", "p999", "max")]  # fmt: skip
    each = micros(_median(result.runs, "cpu_us_per_delivery"))
    return [*latencies, f"{bare('bare_p50_us')} / {bare('bare_p99_us')}", each, generator(result)]


def _log(found: Mapping[str, float]) -> list[str]:
    """What the log has done, and the bare loop beside it."""

    def number(name: str, digits: int) -> str:
        return f"{found[name]:.{digits}f}" if name in found else NONE

    groups = rate(found.get("groups_per_s"))
    of_bare = (
        f"{rate(found.get('bare_per_s'))} ({number('groups_by_bare_ratio', 2)})" if "bare_per_s" in found else NONE
    )
    ratios = [number("syncs_by_groups_ratio", 2), number("written_by_sent_ratio", 2)]
    return [number("receipts_per_group", 1), groups, of_bare, *ratios]


def _recover(result: Result) -> list[str]:
    found = medians(result.runs)
    least = (result.workload.get("wanted") or {}).get("per_s")
    asked = verdict(f"≥ {rate(least)}", found["recovered_per_s"] >= least) if least else NONE
    resident = f"{found['resident_bytes'] / 2**20:.0f}"
    each = [micros(found["recovery_cpu_us_each"]), resident, f"{found['resident_bytes_each']:.0f}"]
    drained = rate(found["drained_per_s"])
    return [rate(found["recovered"]), f"{found['ready_ms']:.0f}", rate(found["recovered_per_s"]), asked, *each, drained]


def _stored(result: Result) -> list[str]:
    found = medians(result.runs)
    least = (result.workload.get("wanted") or {}).get("per_s")
    asked = verdict(f"≥ {rate(least)}", found["consumed_per_s"] >= least) if least else NONE
    rates = [rate(found["held"]), rate(found["queued_per_s"]), rate(found["consumed_per_s"])]
    return [*rates, asked, f"{found['resident_bytes_each']:.0f}", mebibytes(result)]


def _latency(result: Result) -> list[str]:
    def figures(runs: Sequence[Any], since: str, names: Sequence[str]) -> list[str]:
        return [f"{statistics.median(run['latency'][since][f'{name}_us'] for run in runs):.0f}" for name in names]

    relay = (result.relay or {}).get("runs") or []
    beside = " / ".join(figures(relay, "from_intended", ("p50", "p99"))) if _is_whole(relay) else NONE
    return [
        *figures(result.runs, "from_intended", ("p50", "p99", "p999", "max")),
        " / ".join(figures(result.runs, "from_write", ("p50", "p99"))),
        beside,
        generator(result),
    ]


def _idle(result: Result) -> list[str]:
    found = medians(result.runs)
    each = [f"{found[f'user_bytes_per_connection{when}']:.0f}" for when in ("", "_after")]
    rest, to_all = f"{found['idle_core_share']:.3%}".replace("%", " %"), f"{found['message_to_all_ms']:.1f}"
    return [f"{found['connections']:.0f}", *each, rest, to_all, mebibytes(result)]


def _firehose(result: Result) -> list[str]:
    found = medians(result.runs)
    stalls = f"{found['longest_stall_ms']:.0f} ({found['longest_stall_alone_ms']:.0f})"
    rates = [rate(found["alone_per_s"]), rate(found["beside_per_s"]), f"{found['beside_by_alone_ratio']:.2f}"]
    return [*rates, stalls, result.runs[0]["firehose"]["slow_ended"], generator(result), mebibytes(result)]


TABLES: tuple[tuple[Sequence[str], str, Callable[[Result], list[str]]], ...] = (
    (
        ("window", "fanin"),
        "workload|deliveries/s|CPU µs each|relay/s|of relay|generator|peak MiB|runs",
        _throughput,
    ),
    (
        ("queue",),
        "work queue|messages/s|CPU µs each|wanted|relay/s|least / most|generator|peak MiB|runs",
        _queue,
    ),
    (
        ("backlog", "queues"),
        "held|how many|frame|resident bytes each|over the frame|wanted|left after|peak MiB|runs",
        _held,
    ),
    (
        ("latency",),
        "workload|p50 µs|p99 µs|p99.9 µs|max µs|from write p50 / p99|relay p50 / p99|generator|runs",
        _latency,
    ),
    (
        ("idle",),
        "workload|connections|user bytes each|after a message|CPU of a core at rest|message to all ms|peak MiB|runs",
        _idle,
    ),
    (
        ("firehose",),
        "workload|alone/s|after the cut/s|ratio|stall ms (alone)|the slow one|generator|peak MiB|runs",
        _firehose,
    ),
    (
        ("persist",),
        "persistent|receipts/s|CPU µs each|wanted|p50 / p99 µs|receipts a group|groups/s|bare loop/s (of it)|"
        "syncs a group|written / sent|generator|peak MiB|runs",
        _persist,
    ),
    (
        ("persist-rate",),
        "persistent|p50 µs|p99 µs|p99.9 µs|max µs|bare loop p50 / p99|CPU µs each|generator|runs",
        _persist_rate,
    ),
    (
        ("recover",),
        "start|messages|ready ms|messages/s|wanted|CPU µs each|resident MiB|bytes each|then consumed/s|runs",
        _recover,
    ),
    (
        ("stored",),
        "backlog on disk|messages|queued/s|consumed/s|wanted|resident bytes each|peak MiB|runs",
        _stored,
    ),
)
"""Kinds of workload, the columns of their table without `over` and `writers`, and the cells before `runs`."""


def _is_whole(runs: Sequence[Any]) -> bool:
    return bool(runs) and not any(run.get("fault") for run in runs)


def _median(runs: Sequence[Any], name: str) -> float | None:
    """Median over the repetitions; None if one of them failed or lacks the value."""
    if not _is_whole(runs) or any(run.get(name) is None for run in runs):
        return None
    return float(statistics.median(run[name] for run in runs))


def rate(per_second: float | None) -> str:
    """A rate with a suitable unit."""
    if per_second is None:
        return NONE
    if per_second >= 1e6:
        return f"{per_second / 1e6:.2f} M"
    return f"{per_second / 1e3:.1f} k" if per_second >= 1e3 else f"{per_second:.0f}"


def micros(value: float | None) -> str:
    """µs with about three digits."""
    if value is None:
        return NONE
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def generator(result: Result) -> str:
    """CPU of the generator as a share of a core, marked if it may have been the limit."""
    share = _median(result.runs, "generator_share") or 0.0
    return f"{share * 100:.0f} %" + (" (busy)" if share > GENERATOR_BUSY else "")


def mebibytes(result: Result) -> str:
    """Peak memory in MiB."""
    return NONE if result.peak_rss_bytes is None else f"{result.peak_rss_bytes / 2**20:.0f}"


def runs(result: Result) -> str:
    """Number of repetitions, marked if one used less CPU than requested."""
    used = [run["target_cpu_s"] for run in result.runs if run.get("target_cpu_s") is not None]
    rounds = result.workload["kind"] in ("window", "fanin", "queue", "persist")
    short = rounds and _is_whole(result.runs) and min(used, default=float("inf")) < result.workload["min_cpu_s"]
    return f"{len(result.runs)}" + (" (short)" if short else "")


def verdict(wanted: str, is_reached: bool) -> str:
    """The wanted figure, marked if it was not reached."""
    return wanted if is_reached else f"{wanted} (missed)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
