"""A subscriber that reads slowly or not at all, under each `slow_consumer` policy (docs/behaviour.md, section 1)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.parser import Frame
from tests.support.probes import SMALL_BUFFER, Listener, body, flood, rest_of
from tests.support.process import BrokerProcess
from tests.support.wire import Wire
from tests.support.ws import WebSocket

SIZE = 8192
COUNT = 2500
"""20 MB: more than the kernel's buffers of one connection (4 MB) and the outbox hold together."""
OUTBOX = "256KiB"
STALLS_MAX_S = 20.0
"""The sum of all stalls of a flood: far more than one stall of a second, even on a busy machine, and far less than one
for each of the 80 times that the flood fills an outbox."""


class Scene:
    """A broker, a slow subscriber, a fast one that is read in a thread, and a publisher, all on one topic."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.topic = topic
        self.slow = Wire(broker.port, receive_buffer=SMALL_BUFFER)
        self.quick = Wire(broker.port)
        self.publisher = Wire(broker.port)
        for wire in (self.slow, self.quick, self.publisher):
            wire.connect()
        self.slow.subscribe(topic)
        self.quick.subscribe(topic)

    def flood(self) -> Listener:
        """Publishes COUNT messages; the fast subscriber has received them all when this returns."""
        listener = Listener(self.quick, COUNT - 1)
        listener.start()
        flood(self.publisher, self.topic, COUNT, SIZE)
        assert listener.result() == list(range(COUNT)), "the fast subscriber lost a message"
        return listener

    def paced_flood(self) -> None:
        """As `flood`, but never further ahead of the fast subscriber than fits into its outbox."""
        step = (128 << 10) // SIZE
        for first in range(0, COUNT, step):
            sent = range(first, min(first + step, COUNT))
            self.publisher.send(*(frames.send_counted(self.topic, body(number, SIZE)) for number in sent))
            for number in sent:
                message = self.quick.expect("MESSAGE")
                assert int(message.body[:8]) == number, "the fast subscriber lost a message"
        # The slow one may be on another shard than the fast one: all shards answer a SUBSCRIBE, behind the flood.
        self.publisher.subscribe("/topic/behind-the-flood", "behind")

    def close(self) -> None:
        """Closes all three connections."""
        for wire in (self.slow, self.quick, self.publisher):
            wire.discard()


@pytest.fixture
def scene(request: pytest.FixtureRequest, shared_broker: StartBroker, topic: str) -> Iterator[Scene]:
    """A scene with the policy that the test's parameter names."""
    scene = Scene(shared_broker(outbox_limit=OUTBOX, slow_consumer=request.param), topic)
    yield scene
    scene.close()


def numbers(messages: list[Frame]) -> list[int]:
    return [int(message.body[:8]) for message in messages if message.command == "MESSAGE"]


def assert_cut_off(slow: Wire) -> None:
    """Checks that it got the first messages without a gap, then ERROR E-SLOW-CONSUMER, then the end of the stream."""
    received, in_order = rest_of(slow)
    assert in_order, f"a reset or an incomplete frame after {len(received)} frames"
    assert [frame.command for frame in received[-1:]] == ["ERROR"], received[-1:]
    assert received[-1]["code"] == "E-SLOW-CONSUMER"
    got = numbers(received[:-1])
    assert got == list(range(len(got)))
    assert len(got) < COUNT


def assert_stalled_briefly(listener: Listener) -> None:
    """Checks that others waited for the slow subscriber as long as the policy says, but not repeatedly."""
    lengths = [end - begin for begin, end in listener.silences]
    assert sum(lengths) < STALLS_MAX_S, f"stalls, in seconds: {lengths}"


def test_block_does_not_wait_for_a_fast_consumer(shared_broker: StartBroker, topic: str) -> None:
    """Its outbox is sometimes full, and under half again in the same turn: its publisher learns that at once."""
    broker = shared_broker(outbox_limit=OUTBOX, slow_consumer="block:5s")
    with Wire(broker.port) as quick, Wire(broker.port) as publisher:
        quick.connect()
        publisher.connect()
        quick.subscribe(topic)
        listener = Listener(quick, COUNT - 1)
        listener.start()
        flood(publisher, topic, COUNT, SIZE)
        assert listener.result() == list(range(COUNT))
        assert_stalled_briefly(listener)


@pytest.mark.parametrize("scene", ["block:600ms"], indirect=True)
def test_block_cuts_off_a_consumer_that_never_reads_and_others_lose_nothing(scene: Scene) -> None:
    listener = scene.flood()
    assert_stalled_briefly(listener)
    assert_cut_off(scene.slow)
    scene.quick.barrier()


@pytest.mark.parametrize("scene", ["block:5s"], indirect=True)
def test_block_follows_the_pace_of_a_reading_consumer_and_loses_nothing(scene: Scene) -> None:
    slow = Listener(scene.slow, COUNT - 1)
    slow.start()
    scene.flood()
    assert slow.result() == list(range(COUNT))


@pytest.mark.parametrize("scene", ["block:1500ms"], indirect=True)
def test_block_cuts_off_a_consumer_that_reads_a_kilobyte_a_second(scene: Scene) -> None:
    """It reads slowly until the flood ends; then it reads the rest up to the end of the stream."""
    done = threading.Event()

    def read_slowly() -> None:
        while not done.wait(1):
            scene.slow.sock.recv(1024)

    reader = threading.Thread(target=read_slowly, daemon=True)
    reader.start()
    listener = scene.flood()
    done.set()
    reader.join()
    assert_stalled_briefly(listener)
    assert_ends(scene.slow)
    scene.quick.barrier()


def assert_ends(slow: Wire) -> None:
    """Checks that the stream ends. (Its beginning was read outside the parser, so the frames can't be parsed.)"""
    slow.sock.settimeout(slow.timeout)
    tail = b""
    while received := slow.sock.recv(1 << 20):
        tail = (tail + received)[-4096:]
    assert b"E-SLOW-CONSUMER" in tail


@pytest.mark.parametrize("scene", ["disconnect"], indirect=True)
def test_disconnect_cuts_off_at_once(scene: Scene) -> None:
    scene.paced_flood()
    assert_cut_off(scene.slow)
    scene.quick.barrier()


@pytest.mark.parametrize("scene", ["drop-oldest", "drop-newest"], indirect=True)
def test_drop_counts_the_dropped_messages_and_keeps_the_order(scene: Scene, request: pytest.FixtureRequest) -> None:
    scene.paced_flood()
    got, dropped = read_with_drops(scene)
    assert got == sorted(set(got)), "out of order, or delivered twice"
    assert got[-1] == COUNT, "the subscription ended"
    assert len(got) <= COUNT, "no message was dropped"
    assert dropped == COUNT + 1 - len(got), "the headers do not count what is missing"
    policy = request.node.callspec.params["scene"]
    kept = got[:-1]
    if policy == "drop-oldest":
        assert kept[-1] == COUNT - 1, "the newest message is missing"
    else:
        outbox_messages = (256 << 10) // SIZE
        assert kept[:outbox_messages] == list(range(outbox_messages)), "the oldest messages are missing"


def read_with_drops(scene: Scene) -> tuple[list[int], int]:
    """Reads all messages for the slow subscriber and one more; returns the numbers and the sum of `dropped`."""
    got, dropped = [], 0
    scene.slow.send(frames.send("/topic/nobody", "", receipt="drained"))
    while (frame := scene.slow.recv_frame()).command == "MESSAGE":
        got.append(int(frame.body[:8]))
        dropped += int(frame.header("dropped") or 0)
    assert frame["receipt-id"] == "drained"
    flood(scene.publisher, scene.topic, 1, SIZE, start=COUNT)
    frame = scene.slow.expect("MESSAGE")
    return [*got, int(frame.body[:8])], dropped + int(frame.header("dropped") or 0)


@pytest.mark.parametrize("scene", ["drop-newest"], indirect=True)
def test_drop_ends_when_the_consumer_reads_again(scene: Scene) -> None:
    scene.paced_flood()
    read_with_drops(scene)
    for number in range(COUNT + 1, COUNT + 50):
        flood(scene.publisher, scene.topic, 1, SIZE, start=number)
        message = scene.slow.expect("MESSAGE")
        assert int(message.body[:8]) == number
        assert "dropped" not in message


@contextlib.contextmanager
def flooded_websocket(broker: BrokerProcess, topic: str) -> Iterator[WebSocket]:
    """Yields a WebSocket subscriber that has read nothing of a flood."""
    with (
        WebSocket.connected(broker.port, receive_buffer=SMALL_BUFFER) as slow,
        Wire(broker.port) as publisher,
    ):
        slow.subscribe(topic)
        publisher.connect()
        flood(publisher, topic, COUNT, SIZE)
        yield slow


@pytest.mark.parametrize("policy", ["block:600ms", "disconnect"])
def test_websocket_that_never_reads_gets_error_then_1013(shared_broker: StartBroker, topic: str, policy: str) -> None:
    broker = shared_broker(outbox_limit=OUTBOX, slow_consumer=policy)
    with flooded_websocket(broker, topic) as slow:
        *messages, error = slow.frames_until_closed()
        assert (error.command, error["code"]) == ("ERROR", "E-SLOW-CONSUMER")
        assert numbers(messages) == list(range(len(messages)))
        assert slow.closed is not None and slow.closed.code == 1013


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_websocket_frames_stay_intact_when_messages_are_dropped(
    shared_broker: StartBroker, topic: str, policy: str
) -> None:
    broker = shared_broker(outbox_limit=OUTBOX, slow_consumer=policy)
    with flooded_websocket(broker, topic) as slow:
        slow.send(frames.send("/topic/nobody", "", receipt="drained"))
        got = []
        while (frame := slow.recv_frame()).command == "MESSAGE":
            assert len(frame.body) == SIZE
            got.append(int(frame.body[:8]))
        slow.send_close()
        # With several shards the last messages may still have been in transit from the publisher's shard.
        rest = slow.frames_until_closed()
        got += [int(frame.body[:8]) for frame in rest]
        assert all(frame.command == "MESSAGE" and len(frame.body) == SIZE for frame in rest)
        assert got == sorted(set(got))
        slow.expect_close(1000)


@pytest.mark.parametrize("scene", ["block:600ms"], indirect=True)
def test_block_pauses_only_publishers_to_the_slow_consumer(
    scene: Scene, shared_broker: StartBroker, client: Clients
) -> None:
    other = client(to=shared_broker(outbox_limit=OUTBOX, slow_consumer="block:600ms"))
    listener = Listener(scene.quick, COUNT - 1)
    listener.start()
    flooding = threading.Thread(target=flood, args=(scene.publisher, scene.topic, COUNT, SIZE), daemon=True)
    flooding.start()
    round_trips = []
    while flooding.is_alive():
        sent = time.monotonic()
        other.send_and_wait("/topic/other", "x")
        round_trips.append((sent, time.monotonic()))
    assert listener.result() == list(range(COUNT))
    within_a_stall = [
        begin < sent and answered < end for sent, answered in round_trips for begin, end in listener.silences
    ]
    assert any(within_a_stall), "the other publisher stood still during the stalls"
