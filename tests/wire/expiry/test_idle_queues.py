"""`queue_idle_expiry` forgets only queues that are not needed: docs/behaviour.md, section 1."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait, nack_and_wait
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import answer
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess
from tests.support.queues import fill, left_in, take, unsubscribe_and_wait, until_receipt
from tests.support.waiting import eventually
from tests.support.wire import Wire


@pytest.fixture
def forgetful(start_broker: StartBroker) -> BrokerProcess:
    """A broker that forgets idle queues soon."""
    return start_broker(queue_idle_expiry="50ms", redelivery_delay="1h")


def queue_names(wire: Wire) -> set[str]:
    """The names of all queues."""
    return {row["name"] for row in answer(wire, "queues")}


def wait_until_forgotten(wire: Wire, *queues: str) -> None:
    """Returns when these queues are forgotten, and one that has become idle since."""
    eventually(lambda: not queue_names(wire) & set(queues), f"{queues} are forgotten")
    fill(wire, "/queue/clock", "x")
    assert len(left_in(wire, "/queue/clock")) == 1
    eventually(lambda: "/queue/clock" not in queue_names(wire), "the last queue is forgotten")


def is_accepted(client: Clients, broker: BrokerProcess, queue: str) -> bool:
    """Whether a message to a queue is accepted; if not, the reason must be the number of destinations."""
    wire = client(to=broker)
    wire.send(frames.send(queue, "x", receipt="r"))
    frame = wire.recv_frame()
    if frame.command == "RECEIPT":
        wire.disconnect()
        return True
    assert frame["code"] == "E-DEST-COUNT", frame
    wire.discard()
    return False


def wait_for_room(client: Clients, broker: BrokerProcess, queue: str) -> None:
    """Returns when there is room for one more queue."""
    eventually(lambda: is_accepted(client, broker, queue), "an idle queue makes room")


def test_a_queue_that_is_needed_is_not_forgotten(client: Clients, forgetful: BrokerProcess) -> None:
    """Needed are: a message in its delay or in flight, a durable subscription, a temporary queue, a consumer."""
    wire, publisher, watcher = (client(to=forgetful) for _ in range(3))
    fill(publisher, "/queue/delayed", "delayed")
    fill(publisher, "/queue/held", "held")
    wire.subscribe("/topic/kept", "kept", durable="true")
    assert unsubscribe_and_wait(wire, "kept") == []
    wire.subscribe("/temp-queue/own", "own")
    wire.subscribe("/queue/watched", "watched")
    wire.send(frames.subscribe("/queue/delayed", "d", ack="client"))
    assert nack_and_wait(wire, wire.expect_message("delayed")) == []
    assert unsubscribe_and_wait(wire, "d") == []
    wire.send(frames.subscribe("/queue/held", "h", ack="client"))
    take(wire, "held")
    wait_until_forgotten(watcher)
    assert queue_names(watcher) == {"/queue/delayed", "/queue/held", "/queue/watched", "/temp-queue/own", "kept"}
    publisher.send_and_wait("/topic/kept", "for the durable one")
    wire.send(frames.subscribe("/topic/kept", "kept", durable="true"))
    wire.expect_message("for the durable one", subscription="kept")
    for name in ("own", "watched"):
        destination = "/temp-queue/own" if name == "own" else "/queue/watched"
        wire.send(frames.send(destination, name))
        wire.expect_message(name, subscription=name)
    wire.send(frames.unsubscribe("kept", durable="true", receipt="u"))
    assert until_receipt(wire, "u") == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["/queue/", "#"])
def test_a_pattern_gets_messages_of_a_queue_that_was_forgotten(
    client: Clients, forgetful: BrokerProcess, version: str, kind: str
) -> None:
    wire, publisher, watcher = client(version, to=forgetful), client(to=forgetful), client(to=forgetful)
    wire.subscribe(f"{kind}a/*", "pattern")
    for number in range(2):
        publisher.send(frames.send(f"{kind}a/b", str(number)))
        wire.expect_message(str(number), destination=f"{kind}a/b", redelivered=None)
        wait_until_forgotten(watcher, f"{kind}a/b")
    assert unsubscribe_and_wait(wire, "pattern") == []


def test_a_queue_may_be_forgotten_while_a_transaction_to_it_is_open(client: Clients, forgetful: BrokerProcess) -> None:
    wire, watcher = client(to=forgetful), client(to=forgetful)
    fill(watcher, "/queue/a", "x")
    wire.send(frames.begin("t"), frames.send("/queue/a", "kept", transaction="t", receipt="r"))
    wire.expect_receipt("r")
    assert len(left_in(watcher, "/queue/a")) == 1
    wait_until_forgotten(watcher, "/queue/a")
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_receipt("c")
    assert [message.text for message in left_in(watcher, "/queue/a")] == ["kept"]


def test_an_empty_idle_queue_makes_room_for_another(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(queue_idle_expiry="200ms", max_destinations=10)
    wire = client(to=broker)
    for number in range(10):
        wire.send(frames.send(f"/queue/{number}", "x", receipt=str(number)))
        wire.expect_receipt(str(number))
    refused = client(to=broker)
    refused.send(frames.send("/queue/more", "x", receipt="r"))
    refused.expect_error("E-DEST-COUNT", receipt_id="r")
    assert [message.text for message in left_in(wire, "/queue/0")] == ["x"]
    wait_for_room(client, broker, "/queue/more")
    # the queues that hold messages still exist
    for number in range(1, 10):
        assert [message.text for message in left_in(wire, f"/queue/{number}")] == ["x"]


def test_a_queue_with_a_message_is_never_forgotten(client: Clients, start_broker: StartBroker) -> None:
    """Neither a waiting message nor one in flight leaves a queue empty."""
    broker = start_broker(queue_idle_expiry="100ms", max_destinations=4)
    wire, worker = client(to=broker), client(to=broker)
    fill(wire, "/queue/waiting", "waiting")
    fill(wire, "/queue/held", "held")
    worker.subscribe("/queue/watched", "watched")
    worker.send(frames.subscribe("/queue/held", "held", ack="client", receipt="s"))
    (message,) = until_receipt(worker, "s") or [worker.expect_message("held")]
    for number in range(5):
        # each of these must be forgotten before there is room for the next
        wait_for_room(client, broker, f"/queue/clock-{number}")
        assert [message.text for message in left_in(wire, f"/queue/clock-{number}")] == ["x"]
    wire.send(frames.send("/queue/watched", "still watched"))
    worker.expect_message("still watched")
    assert ack_and_wait(worker, message) == []
    assert [message.text for message in left_in(wire, "/queue/waiting")] == ["waiting"]


def test_a_queue_that_was_forgotten_works_again(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(queue_idle_expiry="100ms", max_destinations=1)
    wire = client(to=broker)
    for number in range(3):
        wait_for_room(client, broker, f"/queue/{number}")
        assert [message.text for message in left_in(wire, f"/queue/{number}")] == ["x"]
    wait_for_room(client, broker, "/queue/0")
    wire.send(frames.subscribe("/queue/0"))
    wire.expect_message("x", redelivered=None)
