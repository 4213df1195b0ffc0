"""What a broker says of its store: DIAG `store` (docs/diag.md)."""

from __future__ import annotations

from typing import Any

from tests.support.acks import ack_and_wait
from tests.support.diagnostics import answer
from tests.support.stored import Restart, Stored, send_stored


def figures(stored: Stored) -> Any:
    """The answer to the query, asked by a session of its own."""
    return answer(stored.client(), "store")


def test_figures_are_those_of_what_was_receipted(stored: Stored, queue: str, store: str) -> None:
    before = figures(stored)
    assert (before["kind"], before["state"], before["reason"], before["messages"]) == (store, "ready", "", 0)
    assert before["written_bytes"] == before["groups"] == before["sync"]["count"] == 0
    send_stored(stored.client(), queue, "1", "2", "3")
    after = figures(stored)
    assert (after["messages"], after["segments"], after["unwritten_bytes"]) == (3, 1, 0)
    assert 1 <= after["groups"] <= 3 and after["syncs"] == after["sync"]["count"] >= 1
    assert 0 < after["needed_bytes"] < after["disk_bytes"] and 0 < after["written_bytes"] < after["disk_bytes"]
    # A log writes more than messages; a database counts what is needed in pages.
    assert store == "sqlite" or after["needed_bytes"] < after["written_bytes"]
    assert sum(count for _, _, count in after["sync"]["buckets"]) == after["syncs"]
    assert after["damages"] == after["lost_messages"] == after["paged_messages"] == 0


def test_an_acknowledged_message_is_no_longer_needed(stored: Stored, queue: str) -> None:
    wire = stored.client()
    send_stored(wire, queue, "1" * 10_000, "2")
    before = figures(stored)
    wire.subscribe(queue, "s", ack="client-individual", prefetch_count=1)
    ack_and_wait(wire, wire.expect_message(subscription="s"))
    after = figures(stored)
    assert after["messages"] == 1 and after["needed_bytes"] < before["needed_bytes"]


def test_figures_of_what_was_found_at_the_start(stored: Stored, queue: str, restart: Restart) -> None:
    send_stored(stored.client(), queue, "1", "2", "3")
    restart(stored)
    after = figures(stored)
    assert (after["state"], after["messages"]) == ("ready", 3)
    assert after["needed_bytes"] > 0 and after["damages"] == 0
