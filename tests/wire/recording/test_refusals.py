"""What a replay is refused for, with the header that is wrong."""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.recorded import TOPIC, numbers, record
from tests.support.stored import Stored

FIRST = ("replay-from", "first")


@pytest.mark.parametrize(
    ("destination", "pairs", "code"),
    [
        ("/topic/other", [FIRST], "E-NOT-SUPPORTED"),
        ("/topic/rec/>", [FIRST], "E-NOT-SUPPORTED"),
        ("#rec", [FIRST], "E-NOT-SUPPORTED"),
        ("/temp-queue/x", [FIRST], "E-NOT-SUPPORTED"),
        (TOPIC, [FIRST, ("durable", "true")], "E-NOT-SUPPORTED"),
        (TOPIC, [FIRST, ("no-local", "true")], "E-NOT-SUPPORTED"),
        (TOPIC, [FIRST, ("slow-consumer", "drop-oldest")], "E-NOT-SUPPORTED"),
        (TOPIC, [("replay-from", "now")], "E-VALUE"),
        (TOPIC, [("replay-from", "seq=0")], "E-VALUE"),
        (TOPIC, [("replay-from", "time=31.12.2026")], "E-VALUE"),
        (TOPIC, [("replay-until", "seq=5")], "E-VALUE"),
        (TOPIC, [FIRST, ("replay-until", "5")], "E-VALUE"),
        (TOPIC, [FIRST, ("replay-delay", "soon")], "E-VALUE"),
        (TOPIC, [FIRST, ("on-gap", "ignore")], "E-VALUE"),
        (TOPIC, [FIRST, ("epoch", "-1")], "E-VALUE"),
        (TOPIC, [FIRST, ("replay-lease", "x" * 201)], "E-VALUE"),
    ],
)
def test_a_replay_that_cannot_be_is_refused(
    stored: Stored, destination: str, pairs: list[frames.Header], code: str
) -> None:
    client = stored.client()
    client.send(frames.subscribe(destination, "r", *pairs, receipt="r"))
    error = client.expect_error(code, receipt_id="r")
    assert any(str(name) in error.text for name, _ in pairs), error


def test_an_unknown_epoch_is_a_gap(stored: Stored) -> None:
    client, publisher = stored.client(), stored.client()
    record(publisher, TOPIC, 1, 5)
    client.send(frames.subscribe(TOPIC, "r", ("replay-from", "seq=3"), ("epoch", "7"), receipt="r"))
    client.expect_error("E-REPLAY-GONE", receipt_id="r")
    other = stored.client()
    other.send(frames.subscribe(TOPIC, "r", ("replay-from", "seq=3"), ("epoch", "7"), ("on-gap", "first"), receipt="r"))
    other.expect("RECEIPT", receipt_id="r", recovered="false")
    assert numbers(other, "r", 5) == [1, 2, 3, 4, 5]
