"""What is sampled, and what becomes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import stompica
from stompica.bench import BenchError, procfs
from stompica.bench.sampler import QUERIES, ROWS_MAX, STAGES, Sampler, Stages, spread

Written = list[tuple[str, int | None, Any]]


def written(query: str, answer: Any) -> Written:
    found: Written = []
    spread(1, query, answer, lambda at_us, what, shard, row: found.append((what, shard, dict(row))))
    return found


def test_shards_are_written_one_by_one() -> None:
    answer = [{"shard": 0, "turns": 5}, {"shard": 1, "turns": 7}]
    assert written("shards", answer) == [("shards", 0, {"turns": 5}), ("shards", 1, {"turns": 7})]


def test_queues_are_written_by_name_and_summed_up_where_they_are_many() -> None:
    answer = [{"name": f"/queue/{n}", "kind": "work", "size": n, "in_flight": 1} for n in range(ROWS_MAX + 50)]
    whole, *rows = written("queues", answer)
    assert whole[2] == {"queues": ROWS_MAX + 50, "size": sum(range(ROWS_MAX + 50)), "in_flight": ROWS_MAX + 50}
    assert len(rows) == ROWS_MAX
    assert rows[0][2] == {f"/queue/{ROWS_MAX + 49}": {"size": ROWS_MAX + 49, "in_flight": 1}}, "the longest first"


def test_other_lists_are_summed_up_and_ages_are_the_greatest() -> None:
    rows = [
        {"connection": 9, "subscription": "1", "in_flight": 2, "oldest_ms": 30},
        {"connection": 8, "subscription": "1", "in_flight": 5, "oldest_ms": 10},
    ]
    assert written("ack", rows) == [("ack", None, {"rows": 2, "in_flight": 7, "oldest_ms": 30})]
    assert written("slow", []) == [("slow", None, {"rows": 0})]


def timings(**stages: list[list[int]]) -> dict[str, Any]:
    return {"stages": {name: {"count": 1, "total_ns": 2, "buckets": buckets} for name, buckets in stages.items()}}


def test_stages_are_what_was_added_since_the_answer_before() -> None:
    stages = Stages()
    assert stages.since(timings(read=[[1, 2, 5]], turn=[[9, 9, 9]])) == {"read": [(1, 2, 5)]}
    assert stages.since(timings(read=[[1, 2, 7], [4, 8, 1]])) == {"read": [(1, 2, 2), (4, 8, 1)]}
    assert stages.since(timings(read=[[1, 2, 7], [4, 8, 1]])) == {"read": []}


def test_a_broker_that_began_anew_counts_from_nothing() -> None:
    stages = Stages()
    stages.since(timings(read=[[1, 2, 5], [3, 4, 5]]))
    assert stages.since(timings(read=[[1, 2, 6]])) == {"read": [(1, 2, 6)]}


def test_turns_are_numbers_since_they_hold_all_stages() -> None:
    assert written(STAGES, timings(turn=[[1, 2, 3]])) == [(STAGES, None, {"turn": {"count": 1, "total_ns": 2}})]


def test_a_sample_has_every_answer_and_process() -> None:
    with stompica.Broker(writers=1) as broker:
        with Sampler(60.0, broker.url, {"target": os.getpid(), "gone": 2**30}) as sampler:
            pass
        assert [query for _, query, _ in sampler.samples.answers][: len(QUERIES)] == list(QUERIES)
        assert {row[1] for row in sampler.samples.processes} == {"target"}
        assert sampler.samples.faults == []


def test_a_broker_that_is_gone_is_a_fault_told_once() -> None:
    with stompica.Broker(writers=1) as broker:
        url = broker.url
    sampler = Sampler(60.0, url, {})
    sampler.take()
    sampler.take()
    assert len(sampler.samples.faults) == 1 and "refused" in sampler.samples.faults[0]


def test_the_usage_of_a_tree_holds_that_of_its_children() -> None:
    child = [sys.executable, "-c", "import sys; held = b'x' * 50_000_000; print(flush=True); sys.stdin.read()"]
    before = procfs.usage(os.getpid())
    with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        during = procfs.usage(os.getpid())
        alone = procfs.usage(process.pid)
        assert before and during and alone
        assert process.pid in procfs.tree(os.getpid())
        assert during.rss_bytes >= before.rss_bytes + 50_000_000 and during.cpu_us >= before.cpu_us + alone.cpu_us
        process.stdin.close()  # type: ignore[union-attr]
    assert procfs.usage(process.pid) is None


def test_a_process_that_was_pinned_stays_on_its_cores() -> None:
    (core, *_) = sorted(os.sched_getaffinity(0))
    former = os.sched_getaffinity(0)
    show = [sys.executable, "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"]
    with procfs.pinned([core]):
        shown = subprocess.run(show, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == [str(core)]
    assert os.sched_getaffinity(0) == former
    with pytest.raises(BenchError, match="can't pin to cores"), procfs.pinned([4095]):
        pass


def test_pinning_is_left_alone_where_there_are_few_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert procfs.pinning("auto") == procfs.Pinning()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 5})
    assert procfs.pinning("auto") == procfs.Pinning((0, 1, 2), (5,))
    with pytest.raises(BenchError, match=r"--pin 0-2,7:3: this process may use the cores 0,1,2,5"):
        procfs.pinning("0-2,7:3")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert procfs.pinning("0-2,7:3") == procfs.Pinning((0, 1, 2, 7), (3,))
    assert procfs.pinning("off") == procfs.Pinning()
