"""Many subscriptions of several connections that want the same stale messages."""

from __future__ import annotations

from contextlib import ExitStack

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.wire import Wire

CLIENTS = 4
PATTERNS = 100
"""Of each client: more than it may ask at once."""
TOPICS = 300
MESSAGES = 3000


def test_rivals_for_stale_messages_share_them_and_get_their_receipts(start_broker: StartBroker) -> None:
    """What one was promised by a home another may have taken meanwhile: then it asks for something else."""
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
