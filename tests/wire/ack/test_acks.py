"""The effects of ACK and NACK on queues in each version: STOMP 1.2 "ACK" and "NACK".

See docs/specification.md, items 65 to 70; docs/behaviour.md, sections 3 and 7.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import (
    CLIENT_MODES,
    INDIVIDUAL_MODES,
    ack,
    ack_and_wait,
    deliver,
    nack,
    prefetched,
    unacknowledged,
)
from tests.support.clients import Clients, OpenWebSocket
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.queues import NUMBERS, bodies, fill, left_in, numbered, take, unsubscribe_and_wait
from tests.support.wire import Wire

# -- what an ACK covers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_an_acknowledged_message_is_gone(client: Clients, queue: str, version: str, mode: str) -> None:
    wire = client(version)
    messages = deliver(wire, queue, 5, ack=mode)
    for message in messages:
        assert ack_and_wait(wire, message) == []
    assert unacknowledged(wire, queue) == []


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
@pytest.mark.parametrize("loss", ["reset", "disconnect"])
def test_an_unacknowledged_message_goes_to_another_client(
    client: Clients, queue: str, version: str, mode: str, loss: str
) -> None:
    wire, successor, watcher = client(version), client(version), client()
    detector = LossDetector(wire, watcher)
    messages = deliver(wire, queue, 5, ack=mode)
    assert ack_and_wait(wire, messages[0], messages[1]) == []
    LOSSES[loss](wire)
    detector.wait()
    successor.send(frames.subscribe(queue, "successor", ack=mode))
    again = take(successor, *NUMBERS[2:5], redelivered="true")
    assert ack_and_wait(successor, *again) == []
    assert unacknowledged(successor, queue, "successor") == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("last", range(5))
def test_an_ack_in_client_mode_covers_all_before_it(client: Clients, queue: str, version: str, last: int) -> None:
    wire = client(version)
    messages = deliver(wire, queue, 5)
    assert ack_and_wait(wire, messages[last]) == []
    assert unacknowledged(wire, queue) == NUMBERS[last + 1 : 5]


@pytest.mark.parametrize(("version", "mode"), INDIVIDUAL_MODES)
@pytest.mark.parametrize("only", range(5))
def test_an_ack_in_client_individual_mode_covers_nothing_else(
    client: Clients, queue: str, version: str, mode: str, only: int
) -> None:
    wire = client(version)
    messages = deliver(wire, queue, 5, ack=mode)
    assert ack_and_wait(wire, messages[only]) == []
    assert unacknowledged(wire, queue) == [number for number in NUMBERS[:5] if number != str(only)]


@pytest.mark.parametrize(("version", "mode"), INDIVIDUAL_MODES)
def test_acks_in_client_individual_mode_may_come_in_any_order(
    client: Clients, queue: str, version: str, mode: str
) -> None:
    wire = client(version)
    messages = deliver(wire, queue, 20, ack=mode)
    order = [messages[(number * 7) % 20] for number in range(20)]
    for message in order[:-1]:
        assert ack_and_wait(wire, message) == []
    assert unacknowledged(wire, queue) == bodies(order[-1:])


@pytest.mark.parametrize("version", VERSIONS)
def test_cumulative_acks_may_come_in_several_steps(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    messages = deliver(wire, queue, 20)
    for last in (0, 3, 4, 11, 17):
        assert ack_and_wait(wire, messages[last]) == []
    assert unacknowledged(wire, queue) == ["18", "19"]


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_are_cumulative_within_one_subscription_only(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    for id in "ab":
        wire.subscribe(f"{queue}-{id}", id, ack="client")
    messages: dict[str, list[Frame]] = {"a": [], "b": []}
    for number in NUMBERS[:6]:
        for id in "ab":
            wire.send(frames.send(f"{queue}-{id}", number))
            messages[id].append(wire.expect_message(number, subscription=id))
    assert ack_and_wait(wire, messages["b"][4]) == []
    assert ack_and_wait(wire, messages["a"][1]) == []
    assert unacknowledged(wire, f"{queue}-b", "b") == ["5"]
    assert unacknowledged(wire, f"{queue}-a", "a") == NUMBERS[2:6]


@pytest.mark.parametrize("version", VERSIONS)
def test_two_subscriptions_to_one_queue_are_acknowledged_separately(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    for id in "ab":
        wire.subscribe(queue, id, ack="client")
    wire.send(*(frames.send(queue, number) for number in NUMBERS[:10]))
    messages = [wire.expect_message() for _ in range(10)]
    mine = [message for message in messages if message["subscription"] == "a"]
    others = [message for message in messages if message["subscription"] == "b"]
    assert ack_and_wait(wire, mine[-1]) == []
    assert unsubscribe_and_wait(wire, "a") == []
    assert unacknowledged(wire, queue, "b") == bodies(others)


def test_1_0_subscriptions_without_ids_are_acknowledged_separately(client: Clients, queue: str) -> None:
    wire = client("1.0")
    for name in "ab":
        wire.subscribe(f"{queue}-{name}", None, ack="client")
    for name in "ab":
        wire.send(*(frames.send(f"{queue}-{name}", f"{name}{number}") for number in range(3)))
    messages = {message.text: message for message in (wire.expect_message(subscription=None) for _ in range(6))}
    assert ack_and_wait(wire, messages["b2"]) == []
    assert ack_and_wait(wire, messages["a0"]) == []
    for name, left in (("b", []), ("a", ["a1", "a2"])):
        wire.send(frames.unsubscribe(None, destination=f"{queue}-{name}", receipt=name))
        wire.expect_receipt(name)
        assert bodies(left_in(client(), f"{queue}-{name}")) == left


@pytest.mark.parametrize("version", VERSIONS)
def test_client_and_client_individual_work_side_by_side(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    cumulative = deliver(wire, f"{queue}-a", 5, "a")
    single = deliver(wire, f"{queue}-b", 5, "b", ack="client-individual")
    assert ack_and_wait(wire, single[0]) == []
    assert ack_and_wait(wire, cumulative[2]) == []
    assert unacknowledged(wire, f"{queue}-b", "b") == NUMBERS[1:5]
    assert unacknowledged(wire, f"{queue}-a", "a") == NUMBERS[3:5]


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_of_a_pattern_are_cumulative_over_its_queues(client: Clients, queue: str, version: str) -> None:
    wire = client(version)
    wire.subscribe(f"{queue}/*", "s", ack="client")
    messages = []
    for number in range(6):
        for name in "abc":
            wire.send(frames.send(f"{queue}/{name}", str(number)))
            messages.append(wire.expect_message(str(number)))
    assert ack_and_wait(wire, messages[10]) == []
    assert unsubscribe_and_wait(wire, "s") == []
    assert [bodies(left_in(wire, f"{queue}/{name}")) for name in "abc"] == [["4", "5"], ["4", "5"], ["3", "4", "5"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
def test_a_cumulative_ack_frees_the_credit_of_all_it_covers(client: Clients, destination: str, version: str) -> None:
    wire, publisher = client(version), client()
    messages = prefetched(wire, publisher, destination, 5, of=12)
    wire.barrier(publisher)
    wire.send(ack(wire, messages[3]))
    messages += take(wire, *NUMBERS[5:9])
    wire.barrier(publisher)
    wire.send(ack(wire, messages[8]))
    take(wire, *NUMBERS[9:12])
    wire.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_ack_covers_a_thousand_deliveries(client: Clients, queue: str, version: str) -> None:
    wire, publisher = client(version), client()
    numbers = numbered(2001)
    wire.subscribe(queue, ack="client")
    fill(publisher, queue, *numbers)
    messages = take(wire, *numbers[:1000])
    wire.send(ack(wire, messages[-1]))
    messages = take(wire, *numbers[1000:2000])
    wire.send(ack(wire, messages[-1]))
    wire.expect_message("2000")
    wire.barrier(publisher)


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_acks_over_websocket_work_as_over_tcp(
    client: Clients, ws: OpenWebSocket, queue: str, version: str, mode: str
) -> None:
    wire = ws(version)
    messages = deliver(wire, queue, 5, ack=mode)
    assert ack_and_wait(wire, messages[1]) == []
    expected = ["2", "3", "4"] if mode == "client" else ["0", "2", "3", "4"]
    assert unacknowledged(wire, queue) == expected


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_each_delivery_has_an_id_for_its_ack(client: Clients, queue: str, version: str, mode: str) -> None:
    messages = deliver(client(version), queue, 10, ack=mode)
    if version == "1.2":
        assert len({message["ack"] for message in messages}) == 10
    else:
        assert all("ack" not in message for message in messages)
        assert len({message["message-id"] for message in messages}) == 10


# -- order ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_receipts_of_acks_come_in_order(client: Clients, queue: str, version: str, mode: str) -> None:
    wire = client(version)
    wire.subscribe(f"{queue}/*", "s", ack=mode)
    wire.send(*(frames.send(f"{queue}/{number % 5}", "x") for number in range(40)))
    messages = [wire.expect_message("x") for _ in range(40)]
    wire.send(*(ack(wire, message, receipt=str(at)) for at, message in enumerate(messages)))
    for at in range(40):
        wire.expect_receipt(str(at))


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
@pytest.mark.parametrize("ending", ["disconnect", "close", "half-close", "error"])
def test_an_ack_before_the_end_of_the_connection_counts(
    client: Clients, queue: str, version: str, mode: str, ending: str
) -> None:
    wire, watcher = client(version), client()
    detector = LossDetector(wire, watcher)
    messages = deliver(wire, queue, 5, ack=mode)
    wire.send(*(ack(wire, message) for message in messages[:3]))
    LOSSES[ending](wire)
    detector.wait()
    assert bodies(left_in(client(), queue)) == ["3", "4"]


def test_the_receipt_of_disconnect_covers_the_acks(client: Clients, queue: str) -> None:
    wire = client()
    messages = deliver(wire, queue, 3)
    wire.send(ack(wire, messages[-1]))
    wire.disconnect()
    assert left_in(client(), queue) == []


def test_an_ack_before_an_unsubscribe_in_one_segment_counts(client: Clients, queue: str) -> None:
    wire = client()
    messages = deliver(wire, queue, 5)
    wire.send(ack(wire, messages[2]), frames.unsubscribe("s", receipt="u"))
    wire.expect_receipt("u")
    assert bodies(left_in(wire, queue)) == ["3", "4"]


# -- NACK ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("last", range(4))
def test_a_nack_in_client_mode_covers_all_before_it(quick_client: Wire, queue: str, last: int) -> None:
    messages = deliver(quick_client, queue, 4)
    quick_client.send(nack(quick_client, messages[last]))
    again = take(quick_client, *NUMBERS[: last + 1], redelivered="true", delivery_count="2")
    quick_client.barrier()
    assert ack_and_wait(quick_client, again[-1]) == []
    assert unacknowledged(quick_client, queue) == []


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("only", range(4))
def test_a_nack_in_client_individual_mode_covers_nothing_else(
    client: Clients, quick: BrokerProcess, queue: str, version: str, only: int
) -> None:
    wire = client(version, to=quick)
    messages = deliver(wire, queue, 4, ack="client-individual")
    wire.send(nack(wire, messages[only]))
    wire.expect_message(str(only), redelivered="true", delivery_count="2")
    wire.barrier()
    others = [message for message in messages if message.text != str(only)]
    assert ack_and_wait(wire, *others) == []
    assert unacknowledged(wire, queue) == [str(only)]


@pytest.mark.parametrize("version", ESCAPING)
def test_a_redelivery_is_last_in_the_cumulative_order(quick_client: Wire, queue: str) -> None:
    """A cumulative ACK follows the order of deliveries, not that of the queue."""
    messages = deliver(quick_client, queue, 4)
    quick_client.send(nack(quick_client, messages[1]))
    take(quick_client, "0", "1", redelivered="true")
    assert ack_and_wait(quick_client, messages[3]) == []
    assert unacknowledged(quick_client, queue) == ["0", "1"]


@pytest.mark.parametrize("version", ESCAPING)
def test_nacks_are_cumulative_within_one_subscription_only(quick_client: Wire, queue: str) -> None:
    mine, others = deliver(quick_client, f"{queue}-a", 3, "a"), deliver(quick_client, f"{queue}-b", 3, "b")
    quick_client.send(nack(quick_client, mine[2]))
    take(quick_client, "0", "1", "2", subscription="a", redelivered="true")
    quick_client.barrier()
    assert ack_and_wait(quick_client, others[2]) == []
    assert unacknowledged(quick_client, f"{queue}-b", "b") == []


@pytest.mark.parametrize("version", ESCAPING)
def test_acks_and_nacks_may_be_mixed(client: Clients, quick: BrokerProcess, queue: str, version: str) -> None:
    wire = client(version, to=quick)
    messages = deliver(wire, queue, 10, ack="client-individual")
    wire.send(*((ack if at % 2 else nack)(wire, message) for at, message in enumerate(messages)))
    again = take(wire, "0", "2", "4", "6", "8", redelivered="true")
    assert ack_and_wait(wire, *again) == []
    assert unacknowledged(wire, queue) == []


@pytest.mark.parametrize("version", ESCAPING)
def test_a_nack_frees_credit(client: Clients, queue: str, version: str) -> None:
    wire, publisher = client(version), client()
    wire.subscribe(queue, ack="client-individual", prefetch_count=1)
    fill(publisher, queue, "0", "1", "2")
    wire.send(nack(wire, wire.expect_message("0")))
    wire.send(ack(wire, wire.expect_message("1", redelivered=None)))
    wire.send(ack(wire, wire.expect_message("2", redelivered=None)))
    wire.expect_message("0", redelivered="true")


def test_1_0_has_no_nack_on_queues(client: Clients, queue: str) -> None:
    wire = client("1.0")
    (message,) = deliver(wire, queue, 1)
    wire.send(nack(wire, message))
    wire.expect_error("E-COMMAND")
    successor = client()
    successor.send(frames.subscribe(queue))
    successor.expect_message("0", redelivered="true")
