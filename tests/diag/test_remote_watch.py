"""Watches of a broker in another process: each is one subscription, to which the broker sends records by itself."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator

import pytest

from stompica import diag
from tests.diag.servers import server
from tests.support.clients import StartBroker
from tests.support.process import BrokerProcess

SCHEMES = ["stomp", "ws"]
OFTEN = 0.1
"""The shortest interval, in seconds."""


@pytest.fixture(params=SCHEMES)
def own(request: pytest.FixtureRequest, start_broker: StartBroker) -> Iterator[diag.RemoteDiag]:
    """The only connection of a broker that no other test uses."""
    broker = start_broker()
    with diag.connect(f"{request.param}://{broker.host}:{broker.port}") as own:
        yield own


@pytest.fixture(params=SCHEMES)
def remote(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[diag.RemoteDiag]:
    with diag.connect(f"{request.param}://{broker.host}:{broker.port}") as remote:
        yield remote


@pytest.mark.parametrize("query", diag.QUERIES)
def test_every_query_can_be_watched(remote: diag.RemoteDiag, query: str) -> None:
    with remote.watch(query, interval=OFTEN) as records:
        for _ in range(2):
            record = next(records)
            assert diag.records.decode(query, diag.plain(record)) == record


def test_records_come_without_further_queries(own: diag.RemoteDiag) -> None:
    with own.watch("network", interval=OFTEN) as records:
        taken = [next(records) for _ in range(4)]
    assert len({record.frames_in for record in taken}) == 1, "a query was sent for a record"
    assert taken[0].bytes_out < taken[-1].bytes_out
    assert {record.accepted for record in taken} == {1}


def test_a_watch_is_a_subscription_until_it_is_closed(own: diag.RemoteDiag) -> None:
    watches = [own.watch("session", interval=OFTEN) for _ in range(3)]
    assert own("session").subscriptions == 0, "the subscription began before the first record was read"
    assert [next(records).subscriptions for records in watches] == [1, 2, 3]
    assert own("subs") == ("DIAG/session",)
    watches[0].close()
    watches[0].close()
    assert list(watches[0]) == []
    assert own("session") == diag.Session(own("session").clients, own("session").websockets, 1, subscriptions=2)
    for records in watches[1:]:
        records.close()
    assert own("session").subscriptions == 0


def test_a_watch_without_references_is_unsubscribed(own: diag.RemoteDiag) -> None:
    for record in own.watch("session", interval=OFTEN):
        assert record.subscriptions == 1
        break
    gc.collect()
    with own.watch("session", interval=OFTEN) as records:
        while next(records).subscriptions > 1:
            pass


def test_a_watch_that_is_closed_before_it_began_yields_nothing(own: diag.RemoteDiag) -> None:
    records = own.watch("session", interval=OFTEN)
    records.close()
    assert list(records) == []
    assert own("session").subscriptions == 0


def test_queries_and_watches_share_a_connection(own: diag.RemoteDiag) -> None:
    with own.watch("memory", interval=OFTEN) as memory, own.watch("subs", interval=OFTEN) as subs:
        for _ in range(3):
            assert next(memory).limit_bytes == own("memory").limit_bytes
            assert own("session").clients == 1
            assert "DIAG/memory" in next(subs)


@pytest.mark.parametrize("closed", ["watch", "connection"])
def test_a_waiting_thread_is_woken_when_another_thread_closes_the_watch(remote: diag.RemoteDiag, closed: str) -> None:
    records = remote.watch("session", interval=3600)
    next(records)
    taken: list[diag.Session] = []
    reader = threading.Thread(target=lambda: taken.extend(records))
    reader.start()
    records.close() if closed == "watch" else remote.close()
    reader.join(60)
    assert not reader.is_alive() and taken == []


def test_two_threads_may_read_from_one_watch(remote: diag.RemoteDiag) -> None:
    records = remote.watch("session", interval=OFTEN)
    taken: list[diag.Session] = []

    def take() -> None:
        taken.extend(next(records) for _ in range(3))

    readers = [threading.Thread(target=take) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert len(taken) == 6
    records.close()


def test_a_watch_after_the_end_of_the_connection_is_an_error(remote: diag.RemoteDiag) -> None:
    remote.close()
    records = remote.watch("session", interval=OFTEN)
    with pytest.raises(diag.DiagError, match="connection closed"):
        next(records)
    assert list(records) == []


@pytest.mark.parametrize("interval", [0, 0.05, float("nan"), float("inf"), 100_000])
def test_an_interval_outside_the_broker_s_range_is_refused(remote: diag.RemoteDiag, interval: float) -> None:
    with pytest.raises(ValueError, match=r"from 0\.1 to 86400 s"):
        remote.watch("session", interval=interval)


# -- the broker ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("end", [BrokerProcess.kill, BrokerProcess.stop])
def test_the_end_of_the_broker_is_one_error(
    start_broker: StartBroker, scheme: str, end: Callable[[BrokerProcess], object]
) -> None:
    broker = start_broker()
    with diag.connect(f"{scheme}://{broker.host}:{broker.port}", timeout=20) as remote:
        records = remote.watch("session", interval=3600)
        next(records)
        ending = threading.Thread(target=end, args=(broker,))
        ending.start()
        with pytest.raises(diag.DiagError, match=f"^{scheme}://127.0.0.1:{broker.port}[: ]"):
            next(records)
        assert list(records) == []
        with pytest.raises(diag.DiagError, match=str(broker.port)):
            remote("session")
        ending.join()


# -- async ---------------------------------------------------------------------------------------------------------


def test_watches_alternate_in_one_loop(own: diag.RemoteDiag) -> None:
    async def take(query: str) -> list[object]:
        taken: list[object] = []
        with own.watch(query, interval=OFTEN) as records:
            async for record in records:
                taken.append(record)
                if len(taken) == 3:
                    break
        return taken

    async def both() -> list[list[object]]:
        return list(await asyncio.gather(take("memory"), take("store")))

    memory, store = asyncio.run(both())
    assert len(memory) == 3 and store == [diag.Store("memory")] * 3
    assert own("session").subscriptions == 0


def test_a_cancelled_task_loses_no_record(own: diag.RemoteDiag) -> None:
    async def take() -> None:
        records = own.watch("session", interval=3600)
        assert (await anext(records)).subscriptions == 1
        waiting = asyncio.ensure_future(anext(records))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        waiting = asyncio.ensure_future(anext(records))
        await asyncio.sleep(0)
        await asyncio.to_thread(records.close)
        with pytest.raises(StopAsyncIteration):
            await waiting

    asyncio.run(take())
    assert own("session").subscriptions == 0


def test_a_closed_event_loop_causes_no_error(own: diag.RemoteDiag) -> None:
    records = own.watch("session", interval=OFTEN)

    async def take() -> diag.Session:
        asyncio.ensure_future(anext(records))  # noqa: RUF006 it is cancelled with the loop
        return await anext(records)

    for _ in range(2):
        assert asyncio.run(take()).subscriptions == 1
    assert next(records).subscriptions == 1


def test_the_end_of_the_broker_is_one_error_of_an_async_iterator(start_broker: StartBroker) -> None:
    broker = start_broker()

    async def take() -> list[diag.Session]:
        taken: list[diag.Session] = []
        async for record in connected.watch("session", interval=OFTEN):
            taken.append(record)
            if len(taken) == 2:
                broker.kill()
        return taken

    connected = diag.connect(f"{broker.host}:{broker.port}")
    with connected, pytest.raises(diag.DiagError, match=f"stomp://127.0.0.1:{broker.port}: "):
        asyncio.run(take())


# -- servers that are no broker, or do not answer ------------------------------------------------------------------

CONNECTED = b"CONNECTED\nversion:1.2\nserver:stompica/9\n\n\0"


def message(clients: int) -> bytes:
    """Returns an answer to `session` at an interval."""
    names = f"clients:{clients}\nwebsockets:0\nstomp_connected:1\nsubscriptions:1"
    return f"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:DIAG/session\n{names}\n\nsession\0".encode()


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"ERROR\nmessage:access\\nrefused\n\n\0", "refused: access refused$"),
        (b"MESSAGE\nsubscription:1\n\nsession\0", "sent an invalid answer to DIAG session"),
        (b"MESSAGE\ncontent-length:many\n\n\0", "does not speak STOMP: content-length:many"),
        (b"MESSAGE\ncontent-length:-5\n\n\0", "does not speak STOMP"),
        (b"MESSAGE\nsubscription:other\n\nsession\0", "did not answer in time"),
        (b"", "did not answer in time"),
    ],
)
def test_a_server_that_cannot_be_watched_is_an_error_with_the_reason(answer: bytes, what: str) -> None:
    with server(CONNECTED, answer, lingers=True) as address, diag.connect(address, timeout=2) as remote:
        records = remote.watch("session", interval=OFTEN)
        with pytest.raises(diag.DiagError, match=f"stomp://{address}.*{what}"):
            next(records)
        assert list(records) == []


def test_a_silent_server_does_not_block_an_async_iterator_forever() -> None:
    with server(CONNECTED, message(1), lingers=True) as address, diag.connect(address, timeout=2) as remote:

        async def take() -> list[int]:
            return [record.clients async for record in remote.watch("session", interval=OFTEN)]

        with pytest.raises(diag.DiagError, match="did not answer in time"):
            asyncio.run(take())


def test_an_unanswered_query_ends_the_watches_of_its_connection() -> None:
    with server(CONNECTED, message(1), lingers=True) as address, diag.connect(address, timeout=2) as remote:
        records = remote.watch("session", interval=60)
        assert next(records).clients == 1
        for _ in range(2):
            with pytest.raises(diag.DiagError, match="did not answer in time"):
                remote("store")
        with pytest.raises(diag.DiagError, match="did not answer in time"):
            next(records)
        assert list(records) == []


def test_records_that_a_slow_reader_missed_are_left_out() -> None:
    several = b"".join(message(number) for number in range(2, 7))
    answer = several + b'DIAG\nstore:\nquery:store\n\n{"kind":"memory"}\0'
    with server(CONNECTED, message(1), answer, lingers=True) as address, diag.connect(address, timeout=20) as remote:
        records = remote.watch("session", interval=60)
        assert next(records).clients == 1
        remote("store")  # its answer came after them
        assert next(records).clients == 6


def test_answers_to_queries_of_others_are_ignored() -> None:
    """They come when another client sends a query to the same destination."""
    foreign = b'MESSAGE\nsubscription:1\nquery:store\n\n{"kind":"memory"}\0MESSAGE\nsubscription:1\nsubs:a\n\nsubs\0'
    answer = message(2) + foreign + b'DIAG\nquery:store\n\n{"kind":"memory"}\0'
    with server(CONNECTED, message(1), answer, lingers=True) as address, diag.connect(address, timeout=20) as remote:
        records = remote.watch("session", interval=60)
        assert next(records).clients == 1
        remote("store")  # its answer came after them
        assert next(records).clients == 2


def test_a_connection_without_references_ends_its_thread(broker: BrokerProcess) -> None:
    remote = diag.connect(f"{broker.host}:{broker.port}")
    readers = [thread for thread in threading.enumerate() if thread.name == "stompica-diag"]
    del remote
    gc.collect()
    for reader in readers:
        reader.join(60)
        assert not reader.is_alive()
