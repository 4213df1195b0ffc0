"""Many subscriptions of several connections compete for the same stale messages."""

from __future__ import annotations

from contextlib import ExitStack

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.wire import Wire

CLIENTS = 4
PATTERNS = 100
"""The number of patterns of each client: more than it may request at once."""
TOPICS = 300
MESSAGES = 3000


def test_competing_subscriptions_share_stale_messages_and_get_their_receipts(start_broker: StartBroker) -> None:
    """A message that a home has announced may be taken by another subscription meanwhile: then others are requested."""
    broker = start_broker(TTL="1h")
    with ExitStack() as stack:
        clients = [stack.enter_context(Wire(broker.port)) for _ in range(CLIENTS)]
        publisher = stack.enter_context(Wire(broker.port))
        publisher.connect()
        publisher.send(*(frames.send(f"/topic/stale/{at % TOPICS}", str(at)) for at in range(MESSAGES)))
        publisher.send_and_wait("/topic/other", "")
        for client in clients:
            client.connect()
            client.send(*(frames.subscribe("/topic/stale/*", f"{at}", receipt=f"{at}") for at in range(PATTERNS)))
        taken: list[int] = []
        for client in clients:
            receipts = 0
            while receipts < PATTERNS:
                frame = client.recv_frame()
                if frame.command == "MESSAGE":
                    taken.append(int(frame.text))
                else:
                    assert (frame.command, frame["receipt-id"]) == ("RECEIPT", f"{receipts}")
                    receipts += 1
        assert sorted(taken) == list(range(MESSAGES))
