"""`consumer-window-size` of a pattern applies to all its queues together, whatever their shards.

See docs/behaviour.md, section 5.
"""

from __future__ import annotations

from tests.support import frames
from tests.support.acks import ack
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import answer
from tests.support.parser import Frame

BODY = "." * 900
QUEUES = 48
WINDOW = 6000


def test_a_window_is_not_multiplied_by_the_number_of_threads(
    client: Clients, start_broker: StartBroker, queue: str, writers: int
) -> None:
    broker = start_broker()
    publisher, wire = client(to=broker), client(to=broker)
    for number in range(QUEUES):
        publisher.send_and_wait(f"{queue}/{number}", BODY)
    wire.send(
        frames.subscribe(f"{queue}/>", "s", ack="client-individual", prefetch_count=0, consumer_window_size=WINDOW)
    )
    watcher = client(to=broker)
    held: list[Frame] = []
    while len(held) < QUEUES:
        held.append(wire.expect_message(BODY))
        in_flight = sum(row["in_flight"] for row in answer(watcher, "queues"))
        assert in_flight * len(BODY) <= WINDOW + writers * 1000, f"{in_flight} messages at once"
        wire.send(ack(wire, held[-1]))
    wire.barrier()
