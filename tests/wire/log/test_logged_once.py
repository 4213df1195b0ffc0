"""Warnings that the log shows once, however many threads they concern: docs/behaviour.md, sections 5 and 7."""

from __future__ import annotations

import re

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.process import BrokerProcess
from tests.support.wire import Wire

HINTED = re.compile(r"INFO +'(\S+)' matches whatever remains .*wildcards=segment")
DOTTED = re.compile(r"WARN +'([^']+)' is a topic, as are all dotted names.*'/queue/'")
WARNED = re.compile(r"WARN +persistent:true .*store=memory.*")


def clients_on_every_shard(client: Clients, broker: BrokerProcess) -> list[Wire]:
    """Two clients for each thread of the broker, which assigns connections in turn."""
    return [client(to=broker) for _ in range(2 * int(str(broker.settings["writers"])))]


@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a"])
def test_persistent_true_without_a_store_is_warned_of_once(
    client: Clients, start_broker: StartBroker, destination: str
) -> None:
    broker = start_broker()
    wires = clients_on_every_shard(client, broker)
    for wire in wires:
        wire.send_and_wait(destination, "x")
        wire.send_and_wait(destination, "x", persistent="false")
    assert WARNED.findall(broker.log_text()) == []
    for wire in wires * 2:
        wire.send_and_wait(destination, "x", persistent="true")
        wire.send(frames.begin("t"), frames.send(destination, "x", persistent="true", transaction="t"))
        wire.send(frames.commit("t", receipt="c"))
        wire.expect_receipt("c")
    for wire in wires:
        wire.disconnect()
    assert len(WARNED.findall(broker.log_of_ordered_end())) == 1


def test_a_dotted_pattern_that_matches_deeper_levels_is_logged_once(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker()
    wires = clients_on_every_shard(client, broker)
    for wire in wires:
        for number, pattern in enumerate(("/topic/a/*", "/topic/a.b", "/topic/a.*.b", "/topic/a.>", "/topic/a.b*")):
            wire.subscribe(pattern, str(number))
    assert HINTED.findall(broker.log_text()) == []
    for wire in wires:
        wire.subscribe("/topic/a.*", "deep")
        wire.subscribe("/queue/a.*", "deep too")
    for wire in wires:
        wire.disconnect()
    assert HINTED.findall(broker.log_of_ordered_end()) == ["/topic/a.*"]


def test_a_dotted_pattern_that_matches_one_level_is_not_logged(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(wildcards="segment")
    wire = client(to=broker)
    wire.subscribe("/topic/a.*")
    wire.disconnect()
    assert HINTED.findall(broker.log_of_ordered_end()) == []


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_a_dotted_name_is_a_topic_and_warned_of_once(client: Clients, start_broker: StartBroker, command: str) -> None:
    broker = start_broker()
    wires = clients_on_every_shard(client, broker)
    first = "queue." + "x" * 200
    for number, wire in enumerate(wires):
        for at, other in enumerate(("/topic/a.b", "/queue/a.b", "#a.b", "plain", "a/b", "/a.b")):
            wire.subscribe(other, f"before {at}")
        wire.send_and_wait(f"#work.{number}")
    assert DOTTED.findall(broker.log_text()) == []
    if command == "SEND":
        wires[0].send_and_wait(first)
    for number, wire in enumerate(wires):
        wire.subscribe(first, "s")
        wire.send_and_wait(f"a.{number}")
    wires[0].send(frames.send(first, "all"))
    for wire in wires:
        assert wire.expect_message("all")["destination"] == first
        wire.disconnect()
    assert DOTTED.findall(broker.log_of_ordered_end()) == [first[:100] + "…"]


def test_dotted_names_are_not_warned_of_in_compat_mode(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(compat="stompica")
    wire = client(to=broker)
    wire.send_and_wait("queue.foo")
    wire.subscribe("queue.foo")
    wire.disconnect()
    assert DOTTED.findall(broker.log_of_ordered_end()) == []
