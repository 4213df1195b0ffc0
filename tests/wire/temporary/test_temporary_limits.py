"""The number of temporary destinations of a connection is limited (docs/behaviour.md, sections 5 and 7)."""

from __future__ import annotations

from tests.support import frames
from tests.support.clients import Clients, StartBroker


def test_reply_to_creates_at_most_max_subscriptions_temporary_queues(
    client: Clients, shared_broker: StartBroker, queue: str
) -> None:
    wire = client(to=shared_broker(max_subscriptions=5))
    for number in [*range(5), *range(5)]:
        wire.send_and_wait(queue, reply_to=f"/temp-queue/{number}")
    wire.send(frames.send(queue, reply_to="/temp-queue/one-too-many", receipt="r"))
    assert wire.expect_error()["code"] == "E-SUB-COUNT"


def test_temporary_topics_count_against_the_limit(client: Clients, shared_broker: StartBroker, queue: str) -> None:
    wire = client(to=shared_broker(max_subscriptions=5))
    for number in range(5):
        wire.send_and_wait(queue, reply_to=f"/temp-topic/{number}")
    wire.send(frames.send(queue, reply_to="/temp-queue/one-too-many"))
    assert wire.expect_error()["code"] == "E-SUB-COUNT"
