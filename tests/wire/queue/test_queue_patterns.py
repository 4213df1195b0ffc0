"""Patterns of queues: docs/behaviour.md, section 5."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import ack, ack_and_wait
from tests.support.clients import Clients, StartBroker
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess
from tests.support.queues import NUMBERS, bodies, consumer, fill, left_in, numbered, shares, unsubscribe_and_wait


@pytest.fixture
def isolated(shared_broker: StartBroker) -> BrokerProcess:
    """A broker for patterns that match the queues of every test. Each test consumes what it sends there."""
    return shared_broker(prefetch=999)


# -- wildcards -----------------------------------------------------------------------------------------------------

PATTERNS: list[tuple[str, list[str], list[str]]] = [
    ("/*", ["/a", "/a/b", "/a.b"], [".a", "x"]),
    ("/a*", ["/a", "/ab", "/a/b"], ["/b", "/ba"]),
    ("/*/c", ["/a/c", "/b/c"], ["/c", "/a/b/c", "/a/d"]),
    ("/a.*.c", ["/a.b.c"], ["/a.c", "/a/b/c"]),
    ("/>", ["/a", "/a/b"], ["", ".a"]),
    ("/**", ["/a", "/a/b"], ["", ".a"]),
    ("/#", ["", "/a", "/a/b"], [".a", "x"]),
]


@pytest.mark.parametrize(("pattern", "matches", "others"), PATTERNS)
def test_a_pattern_consumes_from_existing_and_later_queues(
    client: Clients, queue: str, pattern: str, matches: list[str], others: list[str]
) -> None:
    publisher, wire = client(), client()
    names = [*matches, *others]
    for name in names[::2]:
        publisher.send_and_wait(queue + name, f"early {name}")
    wire.send(frames.subscribe(queue + pattern, "pattern"))
    expected = {f"early {name}" for name in names[::2] if name in matches}
    assert {wire.expect_message().text for _ in expected} == expected
    wire.barrier(publisher)
    for name in names:
        publisher.send_and_wait(queue + name, f"late {name}")
        if name in matches:
            wire.expect_message(f"late {name}", destination=queue + name, subscription="pattern")
    wire.barrier(publisher)
    assert unsubscribe_and_wait(wire, "pattern") == []
    for name in names:
        publisher.send_and_wait(queue + name, "after")
    wire.barrier(publisher)
    for name in others:
        waiting = [f"early {name}"] if name in names[::2] else []
        assert bodies(left_in(wire, queue + name)) == [*waiting, f"late {name}", "after"]


def test_a_pattern_and_a_name_share_the_messages(client: Clients, queue: str, topic: str) -> None:
    wires = [consumer(client, queue + name, topic) for name in ("/a", "/*", "/>", "/b")]
    publisher = client()
    fill(publisher, queue + "/a", *NUMBERS)
    *found, nothing = [[int(text) for text in bodies(share)] for share in shares(publisher, wires, topic, 40)]
    assert nothing == []
    assert sorted(found) == [[*range(start, 40, 3)] for start in range(3)]


def test_a_pattern_keeps_the_order_of_each_queue(client: Clients, queue: str) -> None:
    publisher, wire = client(), client()
    for name in "abcd":
        fill(publisher, f"{queue}/{name}", *NUMBERS)
    wire.send(frames.subscribe(f"{queue}/*", ack="client"))
    found = [wire.expect_message() for _ in range(160)]
    for name in "abcd":
        assert [message.text for message in found if message["destination"] == f"{queue}/{name}"] == NUMBERS
    assert ack_and_wait(wire, found[-1]) == []
    assert unsubscribe_and_wait(wire, "0") == []
    for name in "abcd":
        assert left_in(wire, f"{queue}/{name}") == []


def test_the_prefetch_of_a_pattern_covers_all_its_queues(client: Clients, queue: str) -> None:
    publisher, wire = client(), client()
    for index in range(8):
        fill(publisher, f"{queue}/{index}", *NUMBERS[:5])
    wire.send(frames.subscribe(f"{queue}/*", "jobs", ack="client", prefetch_count=3))
    for _ in range(13):
        found = [wire.expect_message() for _ in range(3)]
        wire.barrier(publisher)
        wire.send(ack(wire, found[-1]))
    wire.expect_message()
    wire.barrier(publisher)


def test_prefetch_0_of_a_pattern_means_no_limit(client: Clients, queue: str) -> None:
    publisher, wire = client(), client()
    numbers = numbered(1500)
    fill(publisher, f"{queue}/a", *numbers)
    wire.send(frames.subscribe(f"{queue}/*", "jobs", ack="client-individual", prefetch_count=0))
    assert [wire.expect_message().text for _ in numbers] == numbers


def test_a_pattern_matches_one_kind_of_destination(client: Clients, queue: str, topic: str) -> None:
    publisher, wire = client(), client()
    wire.subscribe(f"{queue}/*", "queues")
    wire.subscribe(f"{topic}/*", "topics")
    publisher.send_and_wait(f"{queue}/a", "queued")
    wire.expect_message("queued", subscription="queues")
    publisher.send(frames.send(f"{topic}/a", "published"))
    wire.expect_message("published", subscription="topics")
    wire.barrier(publisher)


def test_a_lone_wildcard_matches_no_queue(client: Clients, isolated: BrokerProcess, queue: str) -> None:
    wire, publisher = client(to=isolated), client(to=isolated)
    for number, pattern in enumerate(("*", ">", "**", "/*", "/>", "/*/" + queue.removeprefix("/queue/"))):
        wire.subscribe(pattern, str(number))
    publisher.send_and_wait(queue, "x")
    publisher.send(frames.send("end", "end"))
    assert {wire.expect_message("end")["subscription"] for _ in range(3)} == {"0", "1", "2"}
    assert bodies(left_in(publisher, queue)) == ["x"]


@pytest.mark.parametrize("pattern", ["*", ">", "**", "#", "d*", "*/NAME"])
def test_a_pattern_of_all_queues_leaves_out_dead_letter_queues(
    client: Clients, isolated: BrokerProcess, queue: str, pattern: str
) -> None:
    wire, publisher, name = client(to=isolated), client(to=isolated), queue.removeprefix("/queue/")
    publisher.send_and_wait(f"/queue/dlq/{name}", "early")
    wire.subscribe("/queue/" + pattern.replace("NAME", name), "all")
    publisher.send_and_wait(f"/queue/dlq/{name}", "late")
    publisher.send_and_wait(f"/queue/dlq/b/{name}", "late")
    wire.barrier(publisher)
    publisher.send_and_wait(f"/queue/d/{name}", "mine")
    wire.expect_message("mine", destination=f"/queue/d/{name}")
    assert unsubscribe_and_wait(wire, "all") == []
    assert bodies(left_in(publisher, f"/queue/dlq/{name}")) == ["early", "late"]
    assert bodies(left_in(publisher, f"/queue/dlq/b/{name}")) == ["late"]


@pytest.mark.parametrize("pattern", ["*", ">", "**", "t*"])
def test_a_pattern_that_names_dlq_matches_dead_letter_queues(
    client: Clients, isolated: BrokerProcess, queue: str, pattern: str
) -> None:
    wire, publisher, name = client(to=isolated), client(to=isolated), queue.removeprefix("/queue/")
    dead = {f"/queue/dlq/{name}", f"/queue/dlq/{name}/a"}
    for destination in dead:
        publisher.send_and_wait(destination, "dead")
    publisher.send_and_wait(queue, "alive")
    wire.send(frames.subscribe(f"/queue/dlq/{pattern}", "dead"))
    assert {wire.expect_message("dead")["destination"] for _ in range(2)} == dead
    wire.barrier(publisher)
    assert unsubscribe_and_wait(wire, "dead") == []
    assert bodies(left_in(publisher, queue)) == ["alive"]


def test_a_pattern_of_all_queues_leaves_out_temporary_queues(client: Clients, isolated: BrokerProcess) -> None:
    wire, owner = client(to=isolated), client(to=isolated)
    patterns = ("/queue/*", "/queue/>", "/queue/**", "/queue/#", "/queue/t*")
    for number, pattern in enumerate(patterns):
        wire.subscribe(pattern, str(number))
    owner.subscribe("/temp-queue/x", "temp")
    owner.send(frames.send("/temp-queue/x", "private"))
    owner.expect_message("private", subscription="temp")
    wire.barrier(owner)
    for number in range(len(patterns)):
        assert unsubscribe_and_wait(wire, str(number)) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("suffix", ["/*", "/*/a", "/a*", "/>", "/**", "/#"])
def test_send_to_a_pattern_is_an_error(client: Clients, queue: str, version: str, suffix: str) -> None:
    wire = client(version)
    wire.send(frames.send(queue + suffix, "x", receipt="r"))
    wire.expect_error("E-DEST-WILDCARD", receipt_id="r")
