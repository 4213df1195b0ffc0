"""What is sampled, and what becomes of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Any

import pytest

import stompica
from stompica import diag
from stompica.bench import BenchError, procfs, sampler
from stompica.bench.sampler import QUERIES, ROWS_MAX, STAGES, Sampler, Stages, spread
from tests.support.wire import Wire

Written = list[tuple[str, int | None, Any]]


def written(query: str, answer: Any) -> Written:
    found: Written = []
    spread(1, query, answer, lambda at_us, what, shard, row, totals: found.append((what, shard, dict(row))))
    return found


def totals_of(query: str, answer: Any) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    spread(1, query, answer, lambda at_us, what, shard, row, totals: found.append(dict(totals)))
    return found


def test_shards_are_written_one_by_one() -> None:
    answer = [{"shard": 0, "turns": 5}, {"shard": 1, "turns": 7}]
    assert written("shards", answer) == [("shards", 0, {"turns": 5}), ("shards", 1, {"turns": 7})]


def test_what_is_part_of_a_total_names_it() -> None:
    assert totals_of("shards", [{"shard": 0, "turns": 5, "frames_in": 3, "queues": 1}]) == [
        {"turns": "shards.turns", "frames_in": "network.frames_in", "queues": "queues.queues"}
    ]
    queue = {"name": "/queue/a.b", "kind": "work", "size": 1}
    assert totals_of("queues", [queue]) == [{}, {"/queue/a.b.size": "queues.size"}]
    assert totals_of("network", {"frames_in": 3}) == [{}]


def test_parts_add_up_to_the_totals_they_name() -> None:
    """A broker at rest reports the totals too; the sums of the parts are equal to them."""
    found: dict[str, float] = {}
    parts: dict[str, float] = {}

    def write(_at: int, query: str, _shard: int | None, row: Any, totals: Any) -> None:
        for name, value in row.items():
            into, name = (parts, totals[name]) if name in totals else (found, f"{query}.{name}")
            into[name] = into.get(name, 0) + value

    with stompica.Broker(writers=3) as broker, contextlib.ExitStack() as opened:
        for number in range(4):
            wire = opened.enter_context(Wire(broker.port))
            wire.connect()
            wire.subscribe("/temp-queue/mine", "t")
            wire.subscribe("/topic/kept", f"d{number}", durable="true")
            wire.subscribe("/topic/acked", "a", ack="client")
            wire.subscribe(f"#work{number}", "w", ack="client")
            wire.send_and_wait(f"/queue/{number}", "waits")
            wire.send_and_wait(f"#work{number}", "in flight")
        assert broker.settle()
        for query in ("session", "shards", "queues"):
            spread(1, query, diag.plain(broker.diag(query)), write)
        spread(1, "network", diag.plain(broker.diag("network")), write)
    told_elsewhere = {name for name in parts if not name.startswith("shards.")}
    assert {"network.frames_in", "network.deliveries", "network.connections"} <= told_elsewhere
    assert {"session.subscriptions", "queues.queues", "queues.size"} <= told_elsewhere
    assert {name: parts[name] for name in told_elsewhere} == {name: found[name] for name in told_elsewhere}
    assert found["queues.queues"] >= 4 * 4
    assert not set(parts) - told_elsewhere & set(found), "what is the sum of the shards alone is not told again"


def test_queues_are_written_by_name_and_many_are_summed_up() -> None:
    answer = [{"name": f"/queue/{n}", "kind": "work", "size": n, "in_flight": 1} for n in range(ROWS_MAX + 50)]
    whole, *rows = written("queues", answer)
    assert whole[2] == {"queues": ROWS_MAX + 50, "size": sum(range(ROWS_MAX + 50)), "in_flight": ROWS_MAX + 50}
    assert len(rows) == ROWS_MAX
    longest = f"/queue/{ROWS_MAX + 49}"
    assert rows[0][2] == {f"{longest}.size": ROWS_MAX + 49, f"{longest}.in_flight": 1}


def test_queues_with_the_same_name_count_as_one() -> None:
    """Temporary queues of several owners share a name; two rows with one name and time could not be distinguished."""
    alike = [{"name": "/temp-queue/mine", "kind": "temporary", "size": size} for size in (2, 3)]
    assert written("queues", alike)[1:] == [("queues", None, {"/temp-queue/mine.size": 5})]


def test_other_lists_are_summed_up_except_for_ages() -> None:
    rows = [
        {"connection": 9, "subscription": "1", "in_flight": 2, "oldest_ms": 30},
        {"connection": 8, "subscription": "1", "in_flight": 5, "oldest_ms": 10},
    ]
    assert written("ack", rows) == [("ack", None, {"rows": 2, "in_flight": 7, "oldest_ms": 30})]
    assert written("slow", []) == [("slow", None, {"rows": 0})]


def timings(**stages: list[list[int]]) -> dict[str, Any]:
    return {"stages": {name: {"count": 1, "total_ns": 2, "buckets": buckets} for name, buckets in stages.items()}}


def test_stages_contain_what_was_added_since_the_answer_before() -> None:
    stages = Stages()
    assert stages.since(timings(read=[[1, 2, 5]], turn=[[9, 9, 9]])) == {"read": [(1, 2, 5)]}
    assert stages.since(timings(read=[[1, 2, 7], [4, 8, 1]])) == {"read": [(1, 2, 2), (4, 8, 1)]}
    assert stages.since(timings(read=[[1, 2, 7], [4, 8, 1]])) == {"read": []}


def test_counts_begin_at_0_after_a_restart() -> None:
    stages = Stages()
    stages.since(timings(read=[[1, 2, 5], [3, 4, 5]]))
    assert stages.since(timings(read=[[1, 2, 6]])) == {"read": [(1, 2, 6)]}


def test_turns_are_numbers_since_they_include_all_stages() -> None:
    assert written(STAGES, timings(turn=[[1, 2, 3]])) == [(STAGES, None, {"turn": {"count": 1, "total_ns": 2}})]


def test_a_sample_has_every_answer_and_process() -> None:
    with stompica.Broker(writers=1) as broker:
        with Sampler(60.0, broker.url, {"target": os.getpid(), "gone": 2**30}) as sampling:
            pass
        assert [query for _, query, _ in sampling.samples.answers][: len(QUERIES)] == list(QUERIES)
        assert {row[1] for row in sampling.samples.processes} == {"target"}
        assert sampling.samples.faults == []


def test_a_broker_that_has_ended_is_reported_once() -> None:
    with stompica.Broker(writers=1) as broker:
        url = broker.url
    sampling = Sampler(60.0, url, {})
    sampling.take()
    sampling.take()
    assert len(sampling.samples.faults) == 1 and "refused" in sampling.samples.faults[0]


def test_a_broker_that_does_not_answer_is_asked_once_per_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query would take its full timeout to fail."""
    asked: list[str] = []

    def hang(url: str, timeout: float) -> None:
        asked.append(url)
        raise diag.DiagError(f"{url} did not answer in time")

    monkeypatch.setattr(sampler, "connect", hang)
    sampling = Sampler(60.0, "stomp://127.0.0.1:1", {})
    sampling.take()
    sampling.take()
    assert len(asked) == 2


def test_the_usage_of_a_process_includes_that_of_its_children() -> None:
    child = [sys.executable, "-c", "import sys; held = b'x' * 50_000_000; print(flush=True); sys.stdin.read()"]
    before = procfs.usage(os.getpid())
    with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        alone = procfs.usage(process.pid)
        during = procfs.usage(os.getpid())
        assert before and during and alone
        assert process.pid in procfs.tree(os.getpid())
        assert during.rss_bytes >= before.rss_bytes + 50_000_000 and during.cpu_us >= before.cpu_us + alone.cpu_us
        process.stdin.close()  # type: ignore[union-attr]
    assert procfs.usage(process.pid) is None


def test_a_pinned_process_stays_on_its_cores() -> None:
    (core, *_) = sorted(os.sched_getaffinity(0))
    former = os.sched_getaffinity(0)
    show = [sys.executable, "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"]
    with procfs.pinned([core]):
        shown = subprocess.run(show, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == [str(core)]
    assert os.sched_getaffinity(0) == former
    with pytest.raises(BenchError, match="can't pin to cores"), procfs.pinned([4095]):
        pass


def test_nothing_is_pinned_with_few_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert procfs.pinning("auto") == procfs.Pinning()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    assert procfs.pinning("auto") == procfs.Pinning((0, 1, 2), (5,))
    with pytest.raises(BenchError, match=r"--pin 0-2,7:3: this process may use the cores 0,1,2,5"):
        procfs.pinning("0-2,7:3")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert procfs.pinning("0-2,7:3") == procfs.Pinning((0, 1, 2, 7), (3,))
    assert procfs.pinning("off") == procfs.Pinning()
