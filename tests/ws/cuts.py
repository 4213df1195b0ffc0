"""Frames that are cut into two parts."""

from __future__ import annotations

from collections.abc import Callable

from tests.support import frames
from tests.support.ws import WebSocket


def expect_delivered_at_every_cut(client: WebSocket, topic: str, body: str, send: Callable[..., None]) -> None:
    """Sends one SEND cut at every byte by `send(before, after)`; each of them must be delivered."""
    client.subscribe(topic)
    sent = frames.send_counted(topic, body)
    for cut in range(len(sent) + 1):
        send(sent[:cut], sent[cut:])
    for _ in range(len(sent) + 1):
        client.expect_message(body)
