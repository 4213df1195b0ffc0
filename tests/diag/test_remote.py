"""`stompica.diag.connect`: a broker in another process, over TCP and WebSocket; and servers that are no broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from stompica import diag
from tests.diag.servers import server
from tests.support.clients import Clients
from tests.support.process import BrokerProcess


@pytest.fixture(params=["stomp", "ws"])
def remote(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[diag.RemoteDiag]:
    with diag.connect(f"{request.param}://{broker.host}:{broker.port}") as remote:
        yield remote


@pytest.mark.parametrize("query", diag.QUERIES)
def test_every_query_is_answered(remote: diag.RemoteDiag, query: str) -> None:
    record = remote(query)
    assert diag.records.decode(query, diag.plain(record)) == record


def test_answers_include_other_clients(remote: diag.RemoteDiag, client: Clients, topic: str) -> None:
    wire = client()
    before = remote("session")
    wire.subscribe(topic, "1")
    assert remote("session").subscriptions == before.subscriptions + 1
    assert topic in remote("subs")


def test_threads_may_share_a_connection(remote: diag.RemoteDiag) -> None:
    found: list[int] = []

    def ask() -> None:
        found.extend(remote("memory").limit_bytes for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80 and len(set(found)) == 1


def test_an_address_without_a_scheme_is_accepted(broker: BrokerProcess) -> None:
    with diag.connect(f"{broker.host}:{broker.port}") as remote:
        assert remote.server.count(".") == 2


def test_login_and_passcode_are_taken_from_the_url_and_hidden() -> None:
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65536))
                connection.sendall(CONNECTED)
                connection.recv(65536)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        with diag.connect(f"stomp://ann%40home:p%3As%2F@127.0.0.1:{port}") as remote:
            assert remote.address == f"stomp://127.0.0.1:{port}"
        thread.join()
    assert b"\nlogin:ann@home\npasscode:p:s/\n" in seen[0]


def test_a_closed_connection_is_an_error_with_its_name(broker: BrokerProcess) -> None:
    remote = diag.connect(f"{broker.host}:{broker.port}")
    remote.close()
    remote.close()
    with pytest.raises(diag.DiagError, match=str(broker.port)):
        remote("session")


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("http://127.0.0.1:1", "write stomp://"),
        ("stomp://:1", "write stomp://"),
        ("127.0.0.1:99999", "'127.0.0.1:99999' is not an address: port out of range"),
        ("127.0.0.1:port", "is not an address: port could not be cast"),
        ("stomp://[::1", "is not an address: invalid IPv6 URL"),
        ("", "'' is not an address: write stomp://"),
    ],
)
def test_an_invalid_address_is_refused_with_the_reason(url: str, what: str) -> None:
    with pytest.raises(diag.DiagError, match=what):
        diag.connect(url)


def test_a_refused_connection_is_an_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(diag.DiagError, match="refused"):
            diag.connect(f"127.0.0.1:{free.getsockname()[1]}", timeout=20)


CONNECTED = b"CONNECTED\nversion:1.2\nserver:stompica/9\n\n\0"


@pytest.mark.parametrize(
    ("answers", "what"),
    [
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "closed the connection"),
        ([b"ERROR\nmessage:who are you?\n\n\0"], r"refused: who are you\?"),
        ([CONNECTED, b"RECEIPT\n\n\0"], "answered DIAG with RECEIPT: is it stompica"),
        ([CONNECTED, b"DIAG\nsession:{\n\n\0"], "sent an invalid answer to DIAG session"),
        ([CONNECTED, b"DIAG\nother:1\n\n\0"], "sent an invalid answer to DIAG session"),
        ([CONNECTED, b"DIAG\nsession:1\n\n\0"], "DIAG's session is 1, not an object"),
        ([CONNECTED], "closed the connection"),
        ([CONNECTED, b"ERROR\nmessage:E-FORBIDDEN\n\n\0"], "refused: E-FORBIDDEN"),
    ],
)
def test_another_server_is_distinguished_from_a_broker(answers: list[bytes], what: str) -> None:
    with server(*answers) as url, pytest.raises(diag.DiagError, match=what), diag.connect(url, timeout=20) as remote:
        remote("session")


def test_header_values_are_unescaped_and_frames_may_be_split() -> None:
    body = (
        b'[{"name":"/queue/a","kind":"work","size":1,"waiting_bytes":0,'
        b'"in_flight":0,"consumers":0,"enqueued":1,"dequeued":0}]'
    )
    answer = b"\n\nDIAG\nquery:queues\ncontent-length:%d\n\n%s\0" % (len(body), body)
    session = (
        rb"DIAG"
        + b"\n"
        + rb'session:{"clients"\c1,"websockets"\c0,"stomp_connected"\c1,"subscriptions"\c0}'
        + b"\n\n\0"
    )
    with server(CONNECTED, answer + session[:30], session[30:]) as url, diag.connect(url, timeout=20) as remote:
        assert remote("queues")[0].name == "/queue/a"
        assert remote("session").clients == 1


def test_a_missing_answer_is_an_error() -> None:
    with server(CONNECTED, b"") as url, diag.connect(url, timeout=1) as remote:
        with pytest.raises(diag.DiagError, match=r"did not answer in time|closed the connection"):
            remote("session")
        remote.close()
