"""Names without subscribers are forgotten some time, but never while a message to one of them is being delivered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest

from tests.support import frames
from tests.support.acks import nack
from tests.support.clients import StartBroker
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.waiting import eventually
from tests.support.wire import Wire

REMEMBERED = 65_536
"""The most names without a subscription that the broker remembers."""
ATTEMPTS = 64
"""Dead letters with a new name each: from shortly before the limit of names is reached until after."""


@pytest.fixture(params=[0, 600_000], ids=lambda ttl: f"ttl-{ttl}")
def own_broker(request: pytest.FixtureRequest, start_broker: StartBroker) -> BrokerProcess:
    """A broker of the test's own, without stale messages and with them."""
    return start_broker(TTL=request.param, max_stale_queue_size=100_000)


@contextlib.contextmanager
def session(broker: BrokerProcess) -> Iterator[Wire]:
    """Yields a connected session."""
    with Wire(broker.port, timeout=20) as wire:
        wire.connect()
        yield wire


@pytest.fixture
def client(own_broker: BrokerProcess) -> Iterator[Wire]:
    """The client that sends the messages and NACKs."""
    with session(own_broker) as wire:
        yield wire


@pytest.fixture
def held(client: Wire) -> Sequence[Frame]:
    """A delivery from each of `ATTEMPTS` queues to `client`; the next NACK makes it a dead letter."""
    client.subscribe("/queue/own/>", "q", ack="client-individual", max_deliveries="1")
    client.send(*(frames.send(f"/queue/own/{number}", "x") for number in range(ATTEMPTS)))
    return [client.expect_message("x", subscription="q") for _ in range(ATTEMPTS)]


def remember(client: Wire, names: range) -> None:
    """Sends to names without subscribers."""
    for first in range(names.start, names.stop, 5000):
        numbers = range(first, min(first + 5000, names.stop))
        client.send(*(frames.send(f"/topic/nobody/{number}") for number in numbers))
    client.send_and_wait("/topic/nobody")


def nack_and_send(client: Wire, held: Sequence[Frame], topic: str) -> None:
    """While the limit of names is being reached, each NACK makes a dead letter of a new name just before a SEND."""
    client.send_and_wait(topic, "first")
    remember(client, range(REMEMBERED - ATTEMPTS // 2 - len(held)))
    for number, message in enumerate(held):
        client.send(nack(client, message), frames.send(topic, f"{number}"))


def messages_until(wire: Wire, end: str) -> list[str]:
    """Returns the bodies of the MESSAGEs up to this one."""
    found: list[str] = []
    while not found or found[-1] != end:
        found.append(wire.expect("MESSAGE").text)
    return found


def test_a_dead_letter_of_a_new_name_does_not_disturb_a_delivery(
    own_broker: BrokerProcess, client: Wire, held: Sequence[Frame]
) -> None:
    """A NACK and a SEND in one segment: a name that the NACK makes the broker forget does not disturb the delivery."""
    with session(own_broker) as listener:
        patterns = ["/topic/x/>", "/topic/x/a/>", "/topic/*/a/b"]
        for at, pattern in enumerate(patterns):
            listener.subscribe(pattern, f"{at}", ack="auto" if at == 1 else "client", prefetch_count="0")
        nack_and_send(client, held, "/topic/x/a/b")
        client.send_and_wait("/topic/x/a/b", "last")
        for pattern_id in range(len(patterns)):
            listener.send(frames.unsubscribe(f"{pattern_id}", receipt=f"{pattern_id}"))
        found = [listener.recv_frame() for _ in range(len(patterns) * (ATTEMPTS + 3))]
        got = [frame.text for frame in found if frame.command == "MESSAGE"]
        sent = ["first", *(f"{number}" for number in range(ATTEMPTS)), "last"]
        for pattern_id in range(len(patterns)):
            mine = [frame.text for frame in found if frame.header("subscription") == f"{pattern_id}"]
            assert mine == sent
        assert len(got) == len(sent) * len(patterns)


def test_a_pattern_gets_its_messages_beside_an_unlimited_number_of_names(
    own_broker: BrokerProcess, client: Wire, held: Sequence[Frame]
) -> None:
    """After a delivery the broker checks whether a subscriber existed: the name may be forgotten by then."""
    with session(own_broker) as listener:
        listener.subscribe("/topic/x/>", "0", ack="client", prefetch_count="0")
        nack_and_send(client, held, "/topic/x/a")
        remember(client, range(REMEMBERED, 2 * REMEMBERED))
        client.send_and_wait("/topic/x/a", "last")
        assert messages_until(listener, "last") == ["first", *(f"{number}" for number in range(ATTEMPTS)), "last"]
        client.send(frames.subscribe("/queue/dlq/own/>", "dead"))
        dead = [client.expect("MESSAGE", subscription="dead") for _ in held]
        assert {letter["original-destination"] for letter in dead} == {f"/queue/own/{at}" for at in range(ATTEMPTS)}
    eventually(lambda: own_broker.alive, "the broker is alive")
