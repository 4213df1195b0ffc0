"""Retained messages that transactions set when there is hardly room for them: a RECEIPT means that one is kept."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess


@pytest.fixture
def narrow(shared_broker: StartBroker) -> BrokerProcess:
    """A broker with room for one retained message."""
    return shared_broker(max_retained=1)


def test_one_of_several_commits_gets_the_room_and_the_others_fail(narrow: BrokerProcess, client: Clients) -> None:
    for attempt in range(20):
        topics = [f"/topic/narrow/{attempt}/{number}" for number in range(6)]
        setters = [client(to=narrow) for _ in topics]
        for topic, wire in zip(topics, setters, strict=True):
            wire.send(frames.begin("t"), frames.send(topic, "value", retain="set", transaction="t"))
        for wire in setters:
            wire.send(frames.commit("t", receipt="committed"))
        outcomes = [wire.recv_frame() for wire in setters]
        kept = [topic for topic, outcome in zip(topics, outcomes, strict=True) if outcome.command == "RECEIPT"]
        refused = [outcome for outcome in outcomes if outcome.command != "RECEIPT"]
        assert all(outcome["code"] == "E-RETAINED-COUNT" for outcome in refused)
        assert len(kept) <= 1
        for topic in kept:
            reader = client(to=narrow)
            reader.send(frames.subscribe(topic, "0"))
            reader.expect_message("value", retained="true")
            client(to=narrow).send_and_wait(topic, "", retain="remove")


def test_a_message_that_is_set_and_removed_frees_its_room(narrow: BrokerProcess, client: Clients, topic: str) -> None:
    wire = client(to=narrow)
    wire.send(
        frames.begin("t"),
        frames.send(topic, "value", retain="set", transaction="t"),
        frames.send(topic, "", retain="remove", transaction="t"),
        frames.commit("t", receipt="committed"),
    )
    wire.expect_receipt("committed")
    wire.send_and_wait(topic + "-b", "value", retain="set")
    wire.send_and_wait(topic + "-b", "", retain="remove")
