"""Diagnostics are for peers on loopback addresses only; other peers are served in everything else.

See docs/behaviour.md, section 9.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.diagnostics import MONITOR, answer, diag
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess
from tests.support.queues import fill, take
from tests.support.wire import Wire
from tests.support.ws import RawStream, WebSocket, handshake_request

REFUSED = {
    "DIAG frame": diag("session", receipt="r"),
    "unknown query": diag("nothing", receipt="r"),
    "SEND": frames.send("DIAG", "session", receipt="r"),
    "SEND below": frames.send("DIAG/x", "session", receipt="r"),
    "SEND in a transaction": frames.begin("t") + frames.send("DIAG", "session", transaction="t", receipt="r"),
    "SUBSCRIBE": frames.subscribe("DIAG", receipt="r"),
    "SUBSCRIBE below": frames.subscribe("DIAG.network", receipt="r"),
    "SUBSCRIBE to all": frames.subscribe("DIAG*", receipt="r"),
    "interval": frames.subscribe("DIAG/network", receipt="r", interval=1000),
    "monitor": frames.subscribe(MONITOR, receipt="r"),
}
Open = Callable[[str], Wire]


@pytest.fixture
def public(shared_broker: StartBroker) -> BrokerProcess:
    """A broker that listens on every address."""
    return shared_broker(host="0.0.0.0")


def websocket(host: str, port: int, version: str) -> WebSocket:
    """A session over WebSocket to this address."""
    stream = RawStream(port, host=host)
    subprotocols = [f"v{version.replace('.', '')}.stomp"]
    stream.send(handshake_request(port=port, host=f"{host}:{port}", subprotocols=subprotocols))
    assert stream.read_response().status == 101
    wire = WebSocket(stream)
    wire.connect(None if version == "1.0" else version)
    return wire


@pytest.fixture(params=["tcp", "ws"])
def open_remote(request: pytest.FixtureRequest, host: str, public: BrokerProcess) -> Iterator[Open]:
    """Opens a session from an address that is not loopback, over TCP or WebSocket."""
    opened: list[Wire] = []

    def open_one(version: str) -> Wire:
        if request.param == "ws":
            opened.append(websocket(host, public.port, version))
        else:
            opened.append(Wire(public.port, host=host))
            opened[-1].connect(None if version == "1.0" else version)
        return opened[-1]

    yield open_one
    for wire in opened:
        wire.close()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("what", REFUSED)
def test_a_remote_peer_is_refused(open_remote: Open, version: str, what: str) -> None:
    wire = open_remote(version)
    wire.send(REFUSED[what])
    if isinstance(wire, WebSocket):
        wire.expect_error_and_close("E-FORBIDDEN", 1008)
    else:
        wire.expect_error("E-FORBIDDEN", receipt_id="r")


def test_a_remote_peer_is_refused_before_connect(host: str, public: BrokerProcess) -> None:
    with Wire(public.port, host=host) as wire:
        wire.send(diag("session"))
        wire.expect_error("E-FORBIDDEN")


def test_a_refusal_affects_no_other_connection(
    client: Clients, open_remote: Open, public: BrokerProcess, topic: str, queue: str
) -> None:
    """A local client still gets diagnostics, and a remote one still gets everything else."""
    local, other = client(to=public), open_remote("1.2")
    local.subscribe("DIAG", "d")
    local.subscribe(MONITOR, "m")
    local.subscribe(topic, "t")
    other.subscribe(queue)
    refused = open_remote("1.2")
    refused.send(frames.send("DIAG", "session"), frames.send(topic, "never"))
    refused.expect_error("E-FORBIDDEN")
    fill(local, queue, "1", "2")
    take(other, "1", "2")
    other.send(frames.send(topic, "from a remote peer"))
    local.expect_message("from a remote peer", subscription="t")
    local.send(frames.send("DIAG", "store"))
    local.expect_message(subscription="d", query="store")
    assert answer(local, "store")["kind"] == "memory"


def test_loopback_peers_are_recognised_on_a_dual_stack_socket(start_broker: StartBroker, host: str) -> None:
    """On such a socket an IPv4 peer has an IPv6 address."""
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    broker = start_broker(host="::")
    for address in ("::1", "127.0.0.1"):
        with Wire(broker.port, host=address) as wire:
            wire.connect()
            assert answer(wire, "store")["kind"] == "memory"
            wire.subscribe(MONITOR)
    with Wire(broker.port, host=host) as wire:
        wire.connect()
        wire.send(frames.subscribe(MONITOR, receipt="r"))
        wire.expect_error("E-FORBIDDEN", receipt_id="r")


@pytest.mark.parametrize(
    "sent",
    [
        diag("session", receipt="r"),
        frames.send("DIAG", "session", receipt="r"),
        frames.subscribe("DIAG", receipt="r"),
        frames.subscribe("DIAG*", receipt="r"),
        frames.subscribe("DIAG", receipt="r", interval=1000),
        frames.subscribe("/queue/monitor", receipt="r"),
    ],
)
def test_a_remote_peer_is_refused_by_a_broker_of_its_own(start_broker: StartBroker, host: str, sent: bytes) -> None:
    broker = start_broker(host="0.0.0.0")
    with Wire(broker.port, host=host) as wire:
        wire.connect("1.2")
        wire.send(sent)
        wire.expect_error("E-FORBIDDEN", receipt_id="r")
    with Wire(broker.port, host=host) as wire:
        wire.send(diag("session"))
        wire.expect_error("E-FORBIDDEN")
