"""Many subscriptions of several connections compete for the same stale messages."""

from __future__ import annotations

from contextlib import ExitStack

from tests.support import frames
from tests.support.clients import StartBroker
from tests.support.diagnostics import answer
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


def test_subscriptions_do_not_remember_the_stale_messages_that_they_wait_for(start_broker: StartBroker) -> None:
    """Each of them would get all messages, and has no credit for the second one."""
    broker = start_broker(TTL="1h", memory_limit="64MiB")
    with Wire(broker.port) as publisher, Wire(broker.port) as client:
        publisher.connect()
        for begin in range(0, 60_000, 1000):
            publisher.send(*(frames.send(f"/topic/stale/{at % TOPICS}", "x") for at in range(begin, begin + 1000)))
        publisher.send_and_wait("/topic/other", "")
        client.connect()
        options = {"ack": "client", "prefetch_count": 1}
        client.send(*(frames.subscribe("/topic/stale/*", f"{at}", receipt=f"{at}", **options) for at in range(300)))
        while client.recv_frame().header("receipt-id") != "299":
            pass
        assert answer(publisher, "memory")["held_bytes"] < 32 << 20
