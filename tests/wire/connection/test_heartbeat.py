"""STOMP 1.1 and 1.2 "Heart-beating"; docs/specification.md, items 15 to 23.

The broker's heart-beats to a second client, `clock`, measure the time: no test sleeps.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import ESCAPING
from tests.support.process import BrokerProcess
from tests.support.wire import Wire


@pytest.fixture
def beating(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that sends a beat every 100 ms at most and wants one every second (so it waits for two)."""
    return shared_broker(heartbeat="100,1000")


@pytest.fixture
def clock(client: Clients, beating: BrokerProcess) -> Wire:
    """A client that only listens and gets an EOL every 100 ms."""
    return client("1.2", to=beating, heart_beat="0,100")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("offer", ["10000,10000", "0,0", "200,0", "0,300"])
def test_connected_carries_the_server_s_heart_beat(
    client: Clients, shared_broker: StartBroker, version: str, offer: str
) -> None:
    broker = shared_broker(heartbeat=offer)
    assert client.raw(broker).connect(version)["heart-beat"] == offer


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize(
    "value", ["x", "10", "10,", ",10", "-1,0", "0,-1", "1,2,3", "1.5,0", "1;2", "0x1,0", "a,b", "", "1,2,", " , "]
)
def test_a_heart_beat_that_is_not_two_numbers_is_an_error(client: Clients, version: str, value: str) -> None:
    wire = client.raw()
    wire.send(frames.connect(version, ("heart-beat", value)))
    wire.expect_error("E-HEART-BEAT")


def test_a_1_0_session_ignores_the_heart_beat_header(client: Clients) -> None:
    client.raw().connect("1.0", ("heart-beat", "no numbers"))


@pytest.mark.parametrize("version", ESCAPING)
def test_the_server_beats_when_the_client_wants_it(client: Clients, beating: BrokerProcess, version: str) -> None:
    wire = client(version, to=beating, heart_beat="0,50")
    wire.wait_beats(4)


@pytest.mark.parametrize("version", ESCAPING)
def test_a_beat_is_one_eol(client: Clients, beating: BrokerProcess, version: str) -> None:
    wire = client(version, to=beating, heart_beat="0,100")
    wire.sock.settimeout(wire.timeout)
    received = b""
    while len(received) < 4:
        received += wire.sock.recv(64)
    assert received in (b"\n" * len(received), b"\r\n" * 2 if version == "1.2" else b"")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("wish", ["0,0", "100,0", None])
def test_no_beats_for_a_client_that_wants_none(
    client: Clients, beating: BrokerProcess, clock: Wire, version: str, wish: str | None
) -> None:
    wire = client(version, to=beating, heart_beat=wish)
    for _ in range(5):
        clock.wait_beats(1)
        wire.send(b"\n")
    wire.barrier()
    assert wire.beats == 0


def test_no_beats_in_a_1_0_session(client: Clients, beating: BrokerProcess, clock: Wire) -> None:
    wire = client("1.0", to=beating, heart_beat="0,100")
    old = client(None, to=beating, heart_beat="100,100")
    clock.wait_beats(8)
    wire.barrier()
    old.barrier()
    assert wire.beats == old.beats == 0


def test_no_beats_from_a_server_that_offers_none(client: Clients, shared_broker: StartBroker, clock: Wire) -> None:
    wire = client("1.2", to=shared_broker(heartbeat="0,0"), heart_beat="0,50")
    clock.wait_beats(5)
    wire.barrier()
    assert wire.beats == 0


def test_no_beat_before_connected(client: Clients, beating: BrokerProcess, clock: Wire) -> None:
    wire = client.raw(beating)
    wire.send(b"\n")
    clock.wait_beats(5)
    wire.connect("1.2", heart_beat="0,100")
    assert wire.beats == 0


@pytest.mark.parametrize("version", ESCAPING)
def test_a_client_that_falls_silent_is_disconnected(client: Clients, beating: BrokerProcess, version: str) -> None:
    wire = client(version, to=beating, heart_beat="50,0")
    wire.expect_error("E-HEART-BEAT-TIMEOUT")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("promise", ["0,100", None])
def test_a_client_that_promised_no_beats_may_be_silent(
    client: Clients, beating: BrokerProcess, clock: Wire, version: str, promise: str | None
) -> None:
    wire = client(version, to=beating, heart_beat=promise)
    clock.wait_beats(25)
    wire.send(frames.disconnect(receipt="alive"))
    wire.expect_receipt("alive")


def test_a_server_that_wants_no_beats_waits_for_none(client: Clients, shared_broker: StartBroker, clock: Wire) -> None:
    wire = client("1.2", to=shared_broker(heartbeat="100,0"), heart_beat="50,0")
    clock.wait_beats(10)
    wire.barrier()


@pytest.mark.parametrize("version", ESCAPING)
def test_eols_keep_a_client_alive(client: Clients, beating: BrokerProcess, clock: Wire, version: str) -> None:
    wire = client(version, to=beating, heart_beat="1000,0")
    for _ in range(5):
        clock.wait_beats(5)
        wire.send(b"\n")
    wire.barrier()


def test_crlf_is_a_beat_in_1_2(client: Clients, beating: BrokerProcess, clock: Wire) -> None:
    wire = client("1.2", to=beating, heart_beat="1000,0")
    for _ in range(5):
        clock.wait_beats(5)
        wire.send(b"\r\n")
    wire.barrier()


def test_the_interval_is_the_larger_of_both_and_a_late_beat_is_tolerated(
    client: Clients, beating: BrokerProcess, clock: Wire
) -> None:
    """The client offers 20 ms, the server wants 1000: a beat every 1200 ms is late, but within twice the interval."""
    wire = client("1.2", to=beating, heart_beat="20,0")
    for _ in range(3):
        clock.wait_beats(12)
        wire.send(b"\n")
    wire.barrier()


@pytest.mark.parametrize("version", ESCAPING)
def test_any_byte_is_a_sign_of_life_even_inside_a_frame(
    client: Clients, beating: BrokerProcess, clock: Wire, topic: str, version: str
) -> None:
    wire = client(version, to=beating, heart_beat="1000,0")
    wire.subscribe(topic)
    head = (b"SEND\ndest", b"ination:", topic.encode(), b"\ncontent-", b"length:4\n\n")
    for piece in (*head, b"a", b"b", b"\n", b"d", b"\0"):
        clock.wait_beats(4)
        wire.send(piece)
    wire.expect_message(b"ab\nd")


def test_beats_and_messages_may_alternate(client: Clients, beating: BrokerProcess, topic: str) -> None:
    wire = client("1.2", to=beating, heart_beat="0,100")
    publisher = client("1.2", to=beating)
    wire.subscribe(topic)
    for number in range(5):
        wire.wait_beats(1)
        publisher.send(frames.send(topic, f"{number}"))
        wire.expect_message(f"{number}")
    assert wire.beats >= 5


def test_a_beat_of_the_longest_interval_is_accepted(client: Clients) -> None:
    wire = client("1.2", heart_beat="4294967295,4294967295")
    wire.barrier()
