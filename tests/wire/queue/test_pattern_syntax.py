"""Patterns of queues, worker topics and temporary names follow the same rules as patterns of topics.

See docs/behaviour.md, section 5.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.patterns import MISPLACED, SEGMENT
from tests.support.queues import fresh
from tests.support.wire import Wire

KINDS = ["/queue/", "#", "/temp-queue/", "/temp-topic/"]
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


def create_temporary(owner: Wire, *names: str) -> None:
    """Creates the temporary names among these; others need not be created."""
    for number, name in enumerate(name for name in names if name.startswith("/temp-")):
        owner.subscribe(name, str(number))
        owner.send(frames.unsubscribe(str(number), receipt=name))
        owner.expect_receipt(name)


@EACH_KIND
@pytest.mark.parametrize(("pattern", "matches", "others"), SEGMENT)
def test_what_a_pattern_matches_with_wildcards_segment(
    client: Clients, shared_broker: StartBroker, kind: str, pattern: str, matches: list[str], others: list[str]
) -> None:
    base = kind + fresh("segment")
    owner = client(to=shared_broker(wildcards="segment"))
    names = [base + name for name in [*others, *matches]]
    create_temporary(owner, *names)
    owner.subscribe(base + pattern, "pattern")
    owner.send(*(frames.send(name, name) for name in names))
    found = [owner.expect_message(subscription="pattern") for _ in matches]
    assert all(message["destination"] == message.text for message in found)
    assert {message.text for message in found} == {base + name for name in matches}
    owner.barrier()


@EACH_KIND
@pytest.mark.parametrize("pattern", MISPLACED)
def test_a_star_inside_a_segment_is_an_error(client: Clients, kind: str, pattern: str) -> None:
    wire = client()
    wire.send(frames.subscribe(kind + fresh("misplaced") + pattern, receipt="r"))
    wire.expect_error("E-DEST-INVALID", receipt_id="r")


@pytest.mark.parametrize("destination", ["/queue/{}", "#{}", "/topic/{}"])
def test_a_wildcard_in_a_send_is_an_error_before_commit(client: Clients, destination: str) -> None:
    wire = client()
    wire.send(frames.begin("t"))
    wire.send(frames.send(destination.format(fresh("wild")) + "/*", "x", transaction="t", receipt="r"))
    wire.expect_error("E-DEST-WILDCARD", receipt_id="r")
