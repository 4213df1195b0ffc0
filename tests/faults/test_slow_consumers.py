"""A subscriber that reads slowly or not at all, under each `slow_consumer` policy (PRODUCT.md, section 1)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.probes import SMALL_BUFFER, Listener, body, flood, rest_of
from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.wire import Wire
from tests.support.ws import WebSocket

SIZE = 8192
COUNT = 2500
"""20 MB: more than the kernel's buffers of one connection (4 MB) and the outbox together can hide."""
OUTBOX = "256KiB"
STALLS_MAX_S = 20.0
"""All stalls of a flood together: far above one stall of a second and what a busy machine adds, far below one for each
of the 80 times that the flood fills an outbox."""


class Scene:
    """A broker, one slow subscriber, a quick one that is read in a thread, and a publisher, all on one topic."""

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
        """Publishes COUNT messages; the quick subscriber has them all when this returns."""
        listener = Listener(self.quick, COUNT - 1)
        listener.start()
        flood(self.publisher, self.topic, COUNT, SIZE)
        assert listener.result() == list(range(COUNT)), "the quick subscriber lost nothing"
        return listener

    def paced_flood(self) -> None:
        """As `flood`, but never more ahead of the quick subscriber than fits into its outbox."""
        step = (128 << 10) // SIZE
        for first in range(0, COUNT, step):
            sent = range(first, min(first + step, COUNT))
            self.publisher.send(*(frames.send_counted(self.topic, body(number, SIZE)) for number in sent))
            for number in sent:
                message = self.quick.expect("MESSAGE")
                assert int(message.body[:8]) == number, "the quick subscriber lost nothing"
        # The slow one may be on another thread than the quick one: all threads answer a SUBSCRIBE, behind the flood.
        self.publisher.subscribe("/topic/behind-the-flood", "behind")

    def close(self) -> None:
        """Closes the three."""
        for wire in (self.slow, self.quick, self.publisher):
            wire.discard()


@pytest.fixture
def scene(request: pytest.FixtureRequest, shared_broker: StartBroker, topic: str) -> Iterator[Scene]:
    """The scene under the policy that the test's parameter names."""
    scene = Scene(shared_broker(outbox_limit=OUTBOX, slow_consumer=request.param), topic)
    yield scene
    scene.close()


def numbers(messages: list[Frame]) -> list[int]:
    return [int(message.body[:8]) for message in messages if message.command == "MESSAGE"]


def assert_cut_off(slow: Wire) -> None:
    """What was left for it is a beginning without gaps, then ERROR E-SLOW-CONSUMER, then the end."""
    seen, in_order = rest_of(slow)
    assert in_order, f"reset, or half a frame, after {len(seen)} frames"
    assert [frame.command for frame in seen[-1:]] == ["ERROR"], seen[-1:]
    assert seen[-1]["code"] == "E-SLOW-CONSUMER"
    got = numbers(seen[:-1])
    assert got == list(range(len(got)))
    assert len(got) < COUNT


def assert_stalled_briefly(listener: Listener) -> None:
    """Others waited for the slow one as long as the policy says, and not again and again."""
    lengths = [end - begin for begin, end in listener.silences]
    assert sum(lengths) < STALLS_MAX_S, f"stalls, in seconds: {lengths}"


def test_block_a_quick_consumer_is_not_waited_for(shared_broker: StartBroker, topic: str) -> None:
    """Its outbox is full now and then, and under half again in the same turn: its publisher learns that at once."""
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
def test_block_who_never_reads_is_cut_off_and_others_lose_nothing(scene: Scene) -> None:
    listener = scene.flood()
    assert_stalled_briefly(listener)
    assert_cut_off(scene.slow)
    scene.quick.barrier()


@pytest.mark.parametrize("scene", ["block:5s"], indirect=True)
def test_block_a_consumer_that_reads_sets_the_pace_and_loses_nothing(scene: Scene) -> None:
    slow = Listener(scene.slow, COUNT - 1)
    slow.start()
    scene.flood()
    assert slow.result() == list(range(COUNT))


@pytest.mark.parametrize("scene", ["block:1500ms"], indirect=True)
def test_block_who_reads_a_kilobyte_a_second_is_cut_off(scene: Scene) -> None:
    """Its trickle stops with the flood; then it reads what is left, and the end is there."""
    done = threading.Event()

    def trickle() -> None:
        while not done.wait(1):
            scene.slow.sock.recv(1024)

    reader = threading.Thread(target=trickle, daemon=True)
    reader.start()
    listener = scene.flood()
    done.set()
    reader.join()
    assert_stalled_briefly(listener)
    assert_ends(scene.slow)
    scene.quick.barrier()


def assert_ends(slow: Wire) -> None:
    """The stream ends. (Its beginning was read outside the parser, so its frames can't be told.)"""
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
def test_drop_counts_what_was_left_out_and_keeps_the_order(scene: Scene, request: pytest.FixtureRequest) -> None:
    scene.paced_flood()
    got, told = read_with_drops(scene)
    assert got == sorted(set(got)), "order kept, nothing twice"
    assert got[-1] == COUNT, "it is still subscribed"
    assert len(got) <= COUNT, "something had to go"
    assert told == COUNT + 1 - len(got), "the headers tell how many are missing"
    policy = request.node.callspec.params["scene"]
    kept = got[:-1]
    if policy == "drop-oldest":
        assert kept[-1] == COUNT - 1, "the newest stay"
    else:
        outbox_messages = (256 << 10) // SIZE
        assert kept[:outbox_messages] == list(range(outbox_messages)), "the oldest stay"


def read_with_drops(scene: Scene) -> tuple[list[int], int]:
    """Reads all that waits for the slow one, then one message more; the numbers and the sum of `dropped`."""
    got, told = [], 0
    scene.slow.send(frames.send("/topic/nobody", "", receipt="drained"))
    while (frame := scene.slow.recv_frame()).command == "MESSAGE":
        got.append(int(frame.body[:8]))
        told += int(frame.header("dropped") or 0)
    assert frame["receipt-id"] == "drained"
    flood(scene.publisher, scene.topic, 1, SIZE, start=COUNT)
    frame = scene.slow.expect("MESSAGE")
    return [*got, int(frame.body[:8])], told + int(frame.header("dropped") or 0)


@pytest.mark.parametrize("scene", ["drop-newest"], indirect=True)
def test_drop_goes_on_again_when_the_consumer_reads_again(scene: Scene) -> None:
    scene.paced_flood()
    read_with_drops(scene)
    for number in range(COUNT + 1, COUNT + 50):
        flood(scene.publisher, scene.topic, 1, SIZE, start=number)
        message = scene.slow.expect("MESSAGE")
        assert int(message.body[:8]) == number
        assert "dropped" not in message


@pytest.mark.parametrize("policy", ["block:600ms", "disconnect"])
def test_websocket_that_never_reads_gets_error_then_1013(shared_broker: StartBroker, topic: str, policy: str) -> None:
    broker = shared_broker(outbox_limit=OUTBOX, slow_consumer=policy)
    with (
        WebSocket.connected(broker.port, receive_buffer=SMALL_BUFFER) as slow,
        Wire(broker.port) as publisher,
    ):
        slow.subscribe(topic)
        publisher.connect()
        flood(publisher, topic, COUNT, SIZE)
        *messages, error = slow.frames_until_closed()
        assert (error.command, error["code"]) == ("ERROR", "E-SLOW-CONSUMER")
        assert numbers(messages) == list(range(len(messages)))
        assert slow.closed is not None and slow.closed.code == 1013


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_websocket_frames_stay_whole_when_messages_are_dropped(
    shared_broker: StartBroker, topic: str, policy: str
) -> None:
    broker = shared_broker(outbox_limit=OUTBOX, slow_consumer=policy)
    with (
        WebSocket.connected(broker.port, receive_buffer=SMALL_BUFFER) as slow,
        Wire(broker.port) as publisher,
    ):
        slow.subscribe(topic)
        publisher.connect()
        flood(publisher, topic, COUNT, SIZE)
        slow.send(frames.send("/topic/nobody", "", receipt="drained"))
        got = []
        while (frame := slow.recv_frame()).command == "MESSAGE":
            assert len(frame.body) == SIZE
            got.append(int(frame.body[:8]))
        slow.send_close()
        # With several shards the last messages may still have been on their way from the publisher's.
        rest = slow.frames_until_closed()
        got += [int(frame.body[:8]) for frame in rest]
        assert all(frame.command == "MESSAGE" and len(frame.body) == SIZE for frame in rest)
        assert got == sorted(set(got))
        slow.expect_close(1000)


@pytest.mark.parametrize("scene", ["block:600ms"], indirect=True)
def test_block_pauses_only_who_publishes_to_the_slow_one(
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
        other.send_and_wait("/topic/of-somebody-else", "x")
        round_trips.append((sent, time.monotonic()))
    assert listener.result() == list(range(COUNT))
    within_a_stall = [
        begin < sent and answered < end for sent, answered in round_trips for begin, end in listener.silences
    ]
    assert any(within_a_stall), "it went on while the flood stood still"
