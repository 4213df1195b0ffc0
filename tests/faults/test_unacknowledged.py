"""A topic subscriber that does not acknowledge: the outbox rules apply to messages that wait for its credit.

It reads all that it is sent, so its outbox itself is empty.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import answer
from tests.support.parser import Frame

COUNT = 40
BODY = "." * 8000
OUTBOX = "64KiB"


class Scene:
    """A subscriber that holds a delivery, one that reads, and a publisher that sends more than an outbox holds."""

    def __init__(
        self, client: Clients, shared_broker: StartBroker, topic: str, policy: str, own: str | None = None
    ) -> None:
        broker = shared_broker(outbox_limit=OUTBOX, slow_consumer=policy)
        self.holder, self.other, self.publisher, self.watcher = (client(to=broker) for _ in range(4))
        self.holder.subscribe(topic, "s", ack="client-individual", prefetch_count=1, slow_consumer=own)
        self.other.subscribe(topic, "o")
        self.sent = 0
        self.is_held_up = False
        before = self.parked()
        while self.sent < COUNT and not self.is_held_up:
            self.publisher.send(frames.send(topic, f"{self.sent:03}{BODY}", receipt=self.sent))
            self.sent += 1
            self.is_held_up = self.parked() > before
        self.held = self.holder.expect_message(subscription="s")

    def parked(self) -> int:
        """Returns how often publishers have had to wait. Every shard answers, after all that came before."""
        return sum(shard["parked"] for shard in answer(self.watcher, "shards"))

    def expect_all_published(self) -> None:
        """Checks that the publisher is no longer held back, and that the other subscriber gets everything."""
        for number in range(self.sent):
            self.publisher.expect_receipt(str(number))
        assert numbers([self.other.expect_message() for _ in range(self.sent)]) == list(range(self.sent))

    def acknowledge(self) -> list[Frame]:
        """Acknowledges one message after the other, up to the last one that was sent; returns all that came."""
        found = [self.held]
        while numbers(found)[-1] != self.sent - 1:
            self.holder.send(frames.ack(id=found[-1]["ack"]))
            found.append(self.holder.expect_message(subscription="s"))
        return found


def numbers(messages: list[Frame]) -> list[int]:
    """Returns the numbers of the messages."""
    return [int(message.text[:3]) for message in messages]


def missing(messages: list[Frame]) -> int:
    """Returns how many messages were dropped, according to the headers."""
    return sum(int(message.header("dropped") or 0) for message in messages)


def test_block_publishers_wait_and_nothing_is_lost(client: Clients, shared_broker: StartBroker, topic: str) -> None:
    scene = Scene(client, shared_broker, topic, "block:60s")
    assert scene.is_held_up
    assert numbers(scene.acknowledge()) == list(range(scene.sent))
    scene.expect_all_published()


@pytest.mark.parametrize("policy", ["block:200ms", "disconnect"])
def test_a_subscriber_that_does_not_acknowledge_in_time_is_cut_off(
    client: Clients, shared_broker: StartBroker, topic: str, policy: str
) -> None:
    scene = Scene(client, shared_broker, topic, policy)
    scene.holder.expect_error("E-SLOW-CONSUMER")
    scene.expect_all_published()


def scene_with_drops(client: Clients, shared_broker: StartBroker, topic: str, policy: str, own: str | None) -> Scene:
    """Returns a scene in which no publisher was held back."""
    scene = Scene(client, shared_broker, topic, policy, own)
    assert not scene.is_held_up
    scene.expect_all_published()
    return scene


@pytest.mark.parametrize(("policy", "own"), [("drop-newest", None), ("block:60s", "drop-newest")])
def test_drop_newest_keeps_the_oldest(
    client: Clients, shared_broker: StartBroker, topic: str, policy: str, own: str | None
) -> None:
    """The messages that come when there is room again have headers that count the missing ones."""
    scene = scene_with_drops(client, shared_broker, topic, policy, own)
    found = [scene.held]
    while len(found) < 3:
        scene.holder.send(frames.ack(id=found[-1]["ack"]))
        found.append(scene.holder.expect_message(subscription="s"))
    scene.publisher.send(frames.send(topic, f"{scene.sent:03}{BODY}"))
    scene.sent += 1
    scene.other.expect_message()
    scene.watcher.barrier(scene.publisher)
    scene.held = found[-1]
    found += scene.acknowledge()[1:]
    kept = numbers(found)[:-1]
    assert kept == list(range(len(kept))), "not the oldest messages"
    assert 0 < missing(found) == scene.sent - len(found)


@pytest.mark.parametrize(("policy", "own"), [("drop-oldest", None), ("block:60s", "drop-oldest")])
def test_drop_oldest_keeps_the_newest(
    client: Clients, shared_broker: StartBroker, topic: str, policy: str, own: str | None
) -> None:
    scene = scene_with_drops(client, shared_broker, topic, policy, own)
    found = scene.acknowledge()
    assert numbers(found)[1:] == list(range(scene.sent + 1 - len(found), scene.sent)), "not the newest messages"
    assert 0 < missing(found) == scene.sent - len(found)
