"""`slow-consumer` gives a subscription another policy than the server's (docs/behaviour.md, sections 1 and 6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.probes import SMALL_BUFFER, body
from tests.support.wire import Wire

SIZE = 8192
COUNT = 2500
"""20 MB: more than the kernel's buffers of one connection and everything else that holds messages for it."""
STEP = 16


def publish_to_both(wire: Wire, slow_port: int, topic: str, policy: str) -> tuple[Wire, Wire]:
    """Publishes COUNT messages, each read by `wire`, while a subscriber with the policy `policy` does not read."""
    slow = Wire(slow_port, receive_buffer=SMALL_BUFFER)
    slow.connect()
    slow.subscribe(topic, slow_consumer=policy)
    publisher = Wire(slow_port)
    publisher.connect()
    wire.subscribe(topic)
    for first in range(0, COUNT, STEP):
        sent = range(first, min(first + STEP, COUNT))
        publisher.send(*(frames.send_counted(topic, body(number, SIZE)) for number in sent))
        for number in sent:
            assert int(wire.expect("MESSAGE").body[:8]) == number, "another subscriber lost a message"
    return slow, publisher


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_a_subscription_with_a_drop_policy_does_not_hold_up_others(
    client: Clients, shared_broker: StartBroker, topic: str, policy: str
) -> None:
    broker = shared_broker(outbox_limit="256KiB", slow_consumer="block:60s")
    slow, publisher = publish_to_both(client(to=broker), broker.port, topic, policy)
    with slow, publisher:
        got: list[int] = []
        dropped = 0
        while len(got) < 30 or (policy == "drop-oldest" and got[-1] != COUNT - 1):
            message = slow.expect("MESSAGE")
            got.append(int(message.body[:8]))
            dropped += int(message.header("dropped") or 0)
        assert got == sorted(set(got)), "out of order, or delivered twice"
        if policy == "drop-newest":
            assert got == list(range(30)), "the oldest messages are missing"
        else:
            assert 0 < dropped == COUNT - len(got), "the headers do not count what is missing"


def test_a_subscription_with_the_policy_disconnect_is_cut_off(
    client: Clients, shared_broker: StartBroker, topic: str
) -> None:
    broker = shared_broker(outbox_limit="256KiB", slow_consumer="block:60s")
    slow, publisher = publish_to_both(client(to=broker), broker.port, topic, "disconnect")
    with slow, publisher:
        *messages, error = slow.frames_until_closed()
        assert (error.command, error["code"]) == ("ERROR", "E-SLOW-CONSUMER")
        assert [int(message.body[:8]) for message in messages] == list(range(len(messages)))


@pytest.mark.parametrize("leave", [frames.unsubscribe, frames.disconnect])
def test_a_subscription_that_ends_gets_what_waits_for_it_first(
    client: Clients, shared_broker: StartBroker, topic: str, leave: Callable[..., bytes]
) -> None:
    """Its messages wait in a queue of its own, not in the outbox, which holds the credit of one subscription."""
    broker = shared_broker(outbox_limit="64MiB", slow_consumer="block:60s")
    slow, publisher = publish_to_both(client(to=broker), broker.port, topic, "drop-newest")
    with slow, publisher:
        publisher.send(frames.send(topic, body(COUNT, SIZE), receipt="p"))
        publisher.expect_receipt("p")
        slow.send(leave(receipt="r"))
        for number in range(COUNT + 1):
            assert int(slow.expect("MESSAGE").body[:8]) == number
        slow.expect_receipt("r")


def test_a_broker_that_drains_sends_what_waits_for_such_a_subscription(
    client: Clients, start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker(outbox_limit="64MiB", slow_consumer="block:60s", drain="60s")
    slow, publisher = publish_to_both(client(to=broker), broker.port, topic, "drop-newest")
    with slow, publisher:
        publisher.send(frames.send(topic, body(COUNT, SIZE), receipt="p"))
        publisher.expect_receipt("p")
        broker.terminate()
        for number in range(COUNT + 1):
            assert int(slow.expect("MESSAGE").body[:8]) == number


def test_a_server_that_does_not_block_publishers_refuses_the_policy_block(
    client: Clients, shared_broker: StartBroker, topic: str
) -> None:
    wire = client(to=shared_broker(slow_consumer="drop-oldest"))
    wire.send(frames.subscribe(topic, slow_consumer="block:1s", receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")
