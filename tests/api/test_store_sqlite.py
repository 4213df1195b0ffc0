"""The database of `store=sqlite`: what other programs read in it while the broker runs, and files that it refuses."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.api.command_line import CommandLine, refused
from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.queues import dead_letters, fill
from tests.support.stored import PERSISTENT, Stored, in_flight, send_stored, waiting
from tests.support.wire import Wire

FILE = "messages.db"


@pytest.fixture
def stored(tmp_path: Path, writers: int) -> Iterator[Stored]:
    """A broker with a database."""
    stored = Stored(tmp_path / "store", store="sqlite", writers=writers, redelivery_delay=2, max_deliveries=2)
    stored.start()
    yield stored
    stored.close()


def rows(directory: Path, query: str, *, text: Any = str) -> list[tuple[Any, ...]]:
    """The answer to a query, by a connection of its own."""
    with closing(sqlite3.connect(f"file:{directory / FILE}?mode=ro", uri=True)) as connection:
        connection.text_factory = text
        return connection.execute(query).fetchall()


def test_what_waits_can_be_read_while_the_broker_runs(stored: Stored) -> None:
    """A RECEIPT has come, so the row is there; after the RECEIPT of its ACK it is not."""
    wire = stored.client()
    send_stored(wire, "/queue/a", "1", "2", kind="first", expires="4000000000000")
    query = "SELECT queue, destination, persistent, expires, deliveries, headers, body FROM messages ORDER BY place"
    headers = "kind:first\n"
    found = rows(stored.directory, query)
    assert [(*row[:3], row[4], row[6]) for row in found] == [
        ("/queue/a", "/queue/a", 1, 0, b"1"),
        ("/queue/a", "/queue/a", 1, 0, b"2"),
    ]
    assert all(headers in row[5] for row in found)
    assert all(abs(row[3] - 4_000_000_000_000) < 5000 for row in found)
    with in_flight(wire, "/queue/a", 2) as messages:
        assert [message["message-id"] for message in messages] == [
            row[0] for row in rows(stored.directory, "SELECT message_id FROM messages ORDER BY place")
        ]
        wire.send(frames.ack(id=messages[0]["ack"], receipt="gone"))
        wire.expect_receipt("gone")
        assert [row[6] for row in rows(stored.directory, query)] == [b"2"]


def test_failed_deliveries_and_dead_letters_are_shown(stored: Stored) -> None:
    wire = stored.client()
    send_stored(wire, "/queue/a", "bad")
    wire.send(frames.subscribe("/queue/a", "s", ack="client-individual"))
    query = "SELECT queue, deliveries, failures FROM messages WHERE body = CAST('bad' AS BLOB)"
    for number in (1, 2):
        message = wire.expect_message(subscription="s")
        # A later message is stored behind what was told of this delivery.
        send_stored(wire, "/queue/other", str(number))
        assert rows(stored.directory, query) == [("/queue/a", number, number - 1)]
        wire.send(frames.nack(id=message["ack"], receipt=f"refused {number}"))
        wire.expect_receipt(f"refused {number}")
    assert waiting(wire, dead_letters("/queue/a")) == ["bad"]
    assert [row[0] for row in rows(stored.directory, query)] == [dead_letters("/queue/a")]


def test_durable_subscriptions_and_last_values_are_shown(stored: Stored) -> None:
    wire = stored.client()
    wire.subscribe("/topic/a", "d", ("durable", "true"))
    wire.send(frames.send("/topic/last", "value", retain="set", receipt="set"))
    wire.expect_receipt("set")
    wire.disconnect()
    send_stored(stored.client(), "/topic/a", "kept")
    found = rows(stored.directory, "SELECT queue, destination, CAST(body AS TEXT) FROM messages ORDER BY queue")
    (definition, kept, retained) = found
    assert definition[:2] == ("definitions\n", "/topic/a")
    assert kept == (definition[2], "/topic/a", "kept"), "the queue of a subscription has the name in its definition"
    assert retained == ("retained\n", "/topic/last", "value")


def test_ar_messages_has_whole_frames(stored: Stored) -> None:
    """As the table of stompserver's `activerecord`: an id, and the frame as STOMP writes it."""
    wire = stored.client()
    send_stored(wire, "/queue/b", "two")
    send_stored(wire, "/queue/a", "one\0\xff", colour="a:b")
    with in_flight(wire, "/queue/a", 1) as (message,), in_flight(wire, "/queue/b", 1) as (other,):
        ids = [message["message-id"].encode(), other["message-id"].encode()]
    fill(wire, "/queue/a", "not persistent")
    found = rows(stored.directory, "SELECT stomp_id, frame FROM ar_messages", text=bytes)
    assert [stomp_id for stomp_id, _ in found] == ids
    head, _, body = found[0][1].partition(b"\n\n")
    lines = head.split(b"\n")
    assert lines[:3] == [b"MESSAGE", b"message-id:" + ids[0], b"destination:/queue/a"]
    assert b"colour:a\\cb" in lines and b"content-length:6" in lines
    assert body == "one\0\xff\0".encode()


def test_a_shell_that_reads_delays_nothing(stored: Stored) -> None:
    """It sees the state of its beginning."""
    wire = stored.client()
    send_stored(wire, "/queue/a", "1")
    with closing(sqlite3.connect(stored.directory / FILE, isolation_level=None)) as shell:
        shell.execute("BEGIN")
        count = "SELECT count(*) FROM messages"
        assert shell.execute(count).fetchone() == (1,)
        send_stored(wire, "/queue/a", *"23456789")
        assert shell.execute(count).fetchone() == (1,)
        shell.execute("COMMIT")
        assert shell.execute(count).fetchone() == (9,)


def test_a_shell_that_writes_delays_receipts_until_it_has_done(stored: Stored) -> None:
    """Messages are delivered meanwhile, and nothing is lost."""
    wire, consumer = stored.client(), stored.client()
    consumer.subscribe("/queue/a", "s")
    with closing(sqlite3.connect(stored.directory / FILE, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        wire.send(frames.send("/queue/a", "1", PERSISTENT, receipt="stored"))
        consumer.expect_message("1")
        with pytest.raises(AssertionError, match="nothing came"):
            wire.receive_some(0.3)
        shell.execute("COMMIT")
    wire.expect_receipt("stored")


FOREIGN = {
    "text": (b"a database of something else\n" * 100, f"'{FILE}' is no database of a stompica store"),
    "empty": (b"", f"'{FILE}' is no database of a stompica store"),
}


@pytest.mark.parametrize(("content", "said"), FOREIGN.values(), ids=list(FOREIGN))
def test_a_foreign_file_is_refused_and_not_changed(
    stompica: CommandLine, tmp_path: Path, content: bytes, said: str
) -> None:
    directory = tmp_path / "foreign"
    directory.mkdir()
    (directory / FILE).write_bytes(content)
    message = refused(stompica("port=0", "store=sqlite", f"dir={directory}"), status=1)
    assert message == f"cannot use dir '{directory}' for store=sqlite: {said}"
    assert [path.name for path in directory.iterdir()] == [FILE] and (directory / FILE).read_bytes() == content


def test_a_newer_version_is_refused_and_not_changed(
    stompica: CommandLine, start_broker: StartBroker, tmp_path: Path
) -> None:
    directory = tmp_path / "store"
    start_broker(store="sqlite", dir=directory).log_of_ordered_end()
    with closing(sqlite3.connect(directory / FILE)) as newer:
        newer.execute("PRAGMA user_version = 99")
    before = (directory / FILE).read_bytes()
    message = refused(stompica("port=0", "store=sqlite", f"dir={directory}"), status=1)
    assert message == (
        f"cannot use dir '{directory}' for store=sqlite: "
        f"'{FILE}' has version 99 of the format, and this stompica knows version 1"
    )
    assert (directory / FILE).read_bytes() == before


def test_an_ordered_end_leaves_one_file(start_broker: StartBroker, tmp_path: Path) -> None:
    """Everything is in the database itself, which can be copied."""
    broker = start_broker(store="sqlite", dir=tmp_path / "store")
    with Wire(broker.port) as wire:
        wire.connect()
        send_stored(wire, "/queue/a", "1")
    broker.log_of_ordered_end()
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["lock", FILE]
    assert rows(tmp_path / "store", "SELECT CAST(body AS TEXT) FROM messages") == [("1",)]
