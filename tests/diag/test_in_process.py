"""`broker.diag` and `broker.diag.watch` of a broker in this process."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Iterator

import pytest

import stompica
from stompica import diag
from tests.support import frames
from tests.support.wire import Wire


@pytest.fixture
def own() -> Iterator[stompica.Broker]:
    with stompica.Broker(writers=2) as broker:
        yield broker


@pytest.fixture
def wire(own: stompica.Broker) -> Iterator[Wire]:
    with Wire(own.port) as wire:
        wire.connect()
        yield wire


@pytest.mark.parametrize("query", diag.QUERIES)
def test_every_query_gives_its_record(own: stompica.Broker, query: str) -> None:
    record = own.diag(query)
    kind = diag.QUERIES[query]
    assert isinstance(record, kind if isinstance(kind, type) else tuple)
    assert diag.records.decode(query, diag.plain(record)) == record


def test_session_counts_clients_and_subscriptions(own: stompica.Broker, wire: Wire) -> None:
    wire.subscribe("/topic/a", "1")
    wire.subscribe("/topic/b", "2")
    assert own.diag("session") == diag.Session(clients=1, websockets=0, stomp_connected=1, subscriptions=2)
    assert own.diag() == own.diag("session")
    assert own.diag("subs") == ("/topic/a", "/topic/b")
    assert own.diag("pubsub-size") == 2


def test_queues_and_acks_are_rows(own: stompica.Broker, wire: Wire) -> None:
    wire.subscribe("/queue/jobs", "7", ack="client-individual")
    wire.send_and_wait("/queue/jobs", "one")
    wire.expect_message("one")
    (queue,) = own.diag("queues")
    assert (queue.name, queue.size, queue.in_flight, queue.consumers, queue.enqueued) == ("/queue/jobs", 1, 1, 1, 1)
    (ack,) = own.diag("ack")
    assert (ack.subscription, ack.destination, ack.mode, ack.in_flight) == ("7", "/queue/jobs", "client-individual", 1)


def test_network_counters_increase(own: stompica.Broker, wire: Wire) -> None:
    before = own.diag("network")
    wire.subscribe("/topic/a", "1")
    wire.send(frames.send("/topic/a", "hello"))
    wire.expect_message("hello")
    after = own.diag("network")
    assert (after.messages_in - before.messages_in, after.deliveries - before.deliveries) == (1, 1)
    assert after.bytes_in > before.bytes_in and after.bytes_out > before.bytes_out
    assert sum(shard.deliveries for shard in own.diag("shards")) == after.deliveries


def test_records_are_frozen(own: stompica.Broker) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        own.diag("session").clients = 3  # type: ignore[misc]


def test_an_unknown_query_is_refused_with_the_list_of_queries(own: stompica.Broker) -> None:
    with pytest.raises(diag.DiagError, match=r"unknown DIAG query 'sesion': there are session, "):
        own.diag("sesion")
    with pytest.raises(diag.DiagError, match="unknown DIAG query"):
        own.diag.watch("sesion")


def test_a_broker_that_does_not_run_cannot_be_queried() -> None:
    with pytest.raises(stompica.NotRunning):
        stompica.Broker().diag("session")


def test_watch_yields_a_record_at_once_and_then_at_each_interval(own: stompica.Broker) -> None:
    begun = time.monotonic()
    with own.diag.watch("session", interval=0.05) as records:
        taken = [next(records) for _ in range(4)]
    assert taken == [own.diag("session")] * 4
    assert time.monotonic() - begun >= 0.15, "the fourth record came too early"
    assert list(records) == [], "a record came after the end of the block"


def test_watch_ends_when_another_thread_closes_it(own: stompica.Broker) -> None:
    records = own.diag.watch("session", interval=3600)
    next(records)
    taken: list[diag.Session] = []
    reader = threading.Thread(target=lambda: taken.extend(records))
    reader.start()
    records.close()
    reader.join(60)
    assert not reader.is_alive() and taken == []


def test_watch_ends_with_the_broker() -> None:
    with stompica.Broker() as broker:
        records = broker.diag.watch("session", interval=0.02)
        next(records)
    assert list(records) == []


def test_watch_ends_with_a_drained_broker() -> None:
    with stompica.Broker(writers=4) as broker:
        records = broker.diag.watch("session", interval=0.01)
        next(records)
        assert broker.drain(60)
        assert list(records) == []
        with pytest.raises(stompica.NotRunning, match="has ended"):
            broker.diag("session")


def test_watch_is_an_async_iterator() -> None:
    async def take() -> list[diag.Memory]:
        async with stompica.Broker() as broker:
            taken = []
            async for record in broker.diag.watch("memory", interval=0.02):
                taken.append(record)
                if len(taken) == 3:
                    break
            return taken

    assert [record.short for record in asyncio.run(take())] == [False] * 3


@pytest.mark.parametrize("interval", [0, -1, 0.001, float("nan"), float("inf")])
def test_an_invalid_interval_is_refused(own: stompica.Broker, interval: float) -> None:
    with pytest.raises(ValueError, match="interval"):
        own.diag.watch("session", interval=interval)


def test_stage_timings_begin_with_the_first_query(own: stompica.Broker, wire: Wire) -> None:
    assert own.diag("benchmark").enabled_ms_left > 0
    wire.subscribe("/topic/a", "1")
    wire.send(frames.send("/topic/a", "hello"))
    wire.expect_message("hello")
    stages = own.diag("benchmark").stages
    assert {"read", "parse", "route", "encode", "write", "turn"} <= set(stages)
    route = stages["route"]
    assert route.count == sum(bucket.count for bucket in route.buckets) > 0
    assert 0 < route.quantile_ns(0.5) <= route.quantile_ns(1.0) == route.buckets[-1].high_ns
    assert route.mean_ns == route.total_ns / route.count
