"""ACK and NACK on topics: docs/behaviour.md, section 7."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, INDIVIDUAL_MODES, ack, ack_and_wait, deliver, nack, prefetched, settle
from tests.support.clients import Clients, OpenWebSocket
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.process import BrokerProcess
from tests.support.queues import NUMBERS, bodies, fill, numbered, shares, take, unsubscribe_and_wait, until_receipt
from tests.support.wire import Wire


@pytest.mark.parametrize("header", ["prefetch-count", "prefetch", "activemq.prefetchSize", "credit"])
@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_prefetch_limits_deliveries_of_a_topic(
    client: Clients, topic: str, version: str, mode: str, header: str
) -> None:
    wire, free, publisher = client(version), client(), client()
    wire.subscribe(topic, "s", (header, "3"), ack=mode)
    free.subscribe(topic, "free")
    fill(publisher, topic, *NUMBERS[:8])
    take(free, *NUMBERS[:8])
    messages = take(wire, *NUMBERS[:3])
    wire.barrier(publisher)
    for at in range(5):
        wire.send(ack(wire, messages[at]))
        messages += take(wire, NUMBERS[at + 3])
    wire.barrier(publisher)
    assert ack_and_wait(wire, *messages[5:]) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_default_prefetch_of_a_topic_is_a_thousand(client: Clients, topic: str, version: str) -> None:
    wire, publisher = client(version), client()
    numbers = numbered(1500)
    wire.subscribe(topic, "s", ack="client")
    fill(publisher, topic, *numbers)
    messages = take(wire, *numbers[:1000])
    wire.barrier(publisher)
    wire.send(ack(wire, messages[999]))
    take(wire, *numbers[1000:])


@pytest.mark.parametrize(("version", "mode"), INDIVIDUAL_MODES)
def test_individual_acks_on_a_topic_cover_one_message(client: Clients, topic: str, version: str, mode: str) -> None:
    wire, publisher = client(version), client()
    messages = prefetched(wire, publisher, topic, 4, of=10, ack=mode)
    wire.send(ack(wire, messages[3]))
    messages += take(wire, "4")
    wire.barrier(publisher)
    wire.send(ack(wire, messages[0]))
    wire.expect_message("5")
    wire.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_of_a_topic_pattern_are_cumulative_over_its_topics(client: Clients, topic: str, version: str) -> None:
    wire, publisher = client(version), client()
    wire.subscribe(f"{topic}/*", "s", ack="client", prefetch_count=3)
    for number in range(9):
        publisher.send_and_wait(f"{topic}/{number % 2}", str(number))
    messages = take(wire, "0", "1", "2")
    wire.send(ack(wire, messages[2]))
    take(wire, "3", "4", "5")
    wire.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_subscriptions_to_a_topic_are_acknowledged_separately(client: Clients, topic: str, version: str) -> None:
    wire, publisher = client(version), client()
    for id in "ab":
        wire.subscribe(topic, id, ack="client", prefetch_count=2)
    fill(publisher, topic, *NUMBERS[:4])
    messages = [wire.expect_message() for _ in range(4)]
    mine = [message for message in messages if message["subscription"] == "a"]
    others = [message for message in messages if message["subscription"] == "b"]
    assert bodies(mine) == bodies(others) == ["0", "1"]
    wire.send(ack(wire, mine[1]))
    take(wire, "2", "3", subscription="a")
    wire.barrier(publisher)
    wire.send(ack(wire, others[0]))
    take(wire, "2", subscription="b")
    wire.barrier(publisher)


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("version", ESCAPING)
def test_nack_on_a_topic_redelivers_to_the_same_subscription(
    client: Clients, quick: BrokerProcess, topic: str, version: str, mode: str
) -> None:
    wire, other = client(version, to=quick), client(to=quick)
    other.subscribe(topic, "other", ack="client")
    wire.subscribe(topic, "another", ack="client")
    wire.subscribe(topic, "s", ack=mode)
    other.send(frames.send(topic, "0"))
    messages = {message["subscription"]: message for message in (wire.expect_message("0") for _ in range(2))}
    other.expect_message("0")
    wire.send(nack(wire, messages["s"]))
    again = wire.expect_message("0", subscription="s", redelivered="true", delivery_count="2")
    wire.send(nack(wire, again))
    again = wire.expect_message("0", subscription="s", redelivered="true", delivery_count="3")
    assert ack_and_wait(wire, again, messages["another"]) == []
    wire.barrier(other)
    other.barrier()


@pytest.mark.parametrize("version", ESCAPING)
def test_nack_on_a_topic_is_cumulative_in_client_mode(quick_client: Wire, topic: str) -> None:
    messages = deliver(quick_client, topic, 4)
    quick_client.send(nack(quick_client, messages[2]))
    take(quick_client, "0", "1", "2", redelivered="true", delivery_count="2")
    assert ack_and_wait(quick_client, messages[3]) == []
    quick_client.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_ack_timeout_on_a_topic_redelivers_to_the_same_subscription(
    client: Clients, impatient: BrokerProcess, topic: str, version: str
) -> None:
    wire, other = client(version, to=impatient), client(to=impatient)
    other.subscribe(topic, "auto")
    (first,) = deliver(wire, topic, 1)
    other.expect_message("0")
    wire.expect_message("0", redelivered="true", delivery_count="2")
    if version != "1.1":
        # In 1.1 the id names the message, which is in flight again.
        wire.send(ack(wire, first, receipt="late"))
        found = until_receipt(wire, "late")
        wire.expect_message("0", redelivered="true", delivery_count=str(3 + len(found)))
    other.barrier(wire)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("loss", ["unsubscribe", "reset", "disconnect"])
def test_messages_in_flight_to_a_topic_subscriber_end_with_it(
    client: Clients, topic: str, version: str, loss: str
) -> None:
    wire, watcher, successor = client(version), client(), client()
    detector = LossDetector(wire, watcher)
    wire.subscribe(topic, "s", ack="client", prefetch_count=2)
    successor.subscribe(f"{topic}-2", "end")
    fill(watcher, topic, *NUMBERS[:5])
    take(wire, "0", "1")
    if loss == "unsubscribe":
        assert unsubscribe_and_wait(wire, "s") == []
    else:
        LOSSES[loss](wire)
        detector.wait()
    successor.subscribe(topic, "successor")
    assert shares(watcher, [successor], f"{topic}-2") == [[]]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_late_ack_on_a_topic_is_a_no_op(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    messages = deliver(wire, topic, 3)
    assert unsubscribe_and_wait(wire, "s") == []
    wire.send(ack(wire, messages[1], receipt="late"))
    wire.expect_receipt("late")
    wire.barrier()


def test_1_0_message_ids_of_client_subscriptions_name_deliveries(client: Clients, topic: str) -> None:
    """A 1.0 ACK has only the message-id, so two deliveries of one message to one connection have different ones."""
    wire = client("1.0")
    for id in "ab":
        wire.subscribe(topic, id, ack="client", prefetch_count=1)
    wire.send(frames.send(topic, "0"), frames.send(topic, "1"))
    messages = {message["subscription"]: message for message in (wire.expect_message("0") for _ in range(2))}
    assert messages["a"]["message-id"] != messages["b"]["message-id"]
    wire.send(ack(wire, messages["b"]))
    wire.expect_message("1", subscription="b")
    wire.barrier()
    wire.send(ack(wire, messages["a"]))
    wire.expect_message("1", subscription="a")


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_acks_and_nacks_on_a_topic_work_over_websocket(
    ws: OpenWebSocket, quick: BrokerProcess, topic: str, command: str
) -> None:
    wire = ws("1.2", to=quick)
    (message,) = deliver(wire, topic, 1)
    wire.send(settle(command, wire, message))
    if command == "NACK":
        wire.expect_message("0", redelivered="true")
    wire.barrier()
