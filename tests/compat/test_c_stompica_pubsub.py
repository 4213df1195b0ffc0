"""`compat=stompica`: C stompica's pub-sub, wildcards and errors.

There is no `/queue/` kind: every destination except `#…` is pub-sub. The text before the first `*` of a subscription is
a plain prefix, wherever the `*` is.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients, StartBroker
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["/queue/", "/topic/", "/q/", "/", "", "/temp-queue/", "/temp-topic/"])
def test_every_destination_is_pub_sub(
    client: Clients, compat: BrokerProcess, name: str, version: str, kind: str
) -> None:
    destination = kind + name
    subscribers = [client(version, to=compat) for _ in range(3)]
    publisher = client(version, to=compat)
    publisher.send_and_wait(destination, "no subscriber, not held")
    for wire in subscribers:
        wire.subscribe(destination)
    publisher.send(*(frames.send(destination, str(number)) for number in range(10)))
    for wire in subscribers:
        for number in range(10):
            wire.expect_message(str(number), destination=destination)
        wire.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_worker_topics_are_still_a_kind_of_their_own(
    client: Clients, compat: BrokerProcess, name: str, version: str
) -> None:
    """Each message goes to one of the subscribers, in turn."""
    workers, publisher = [client(version, to=compat) for _ in range(2)], client(version, to=compat)
    for wire in workers:
        wire.subscribe(f"#{name}")
    publisher.send(*(frames.send(f"#{name}", str(number)) for number in range(10)))
    bodies = [[int(wire.expect_message().text) for _ in range(5)] for wire in workers]
    assert sorted(bodies) == [list(range(0, 10, 2)), list(range(1, 10, 2))]


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("/q/{}/*", ["/q/{}/a", "/q/{}/a/b", "/q/{}/a.b", "/q/{}/"], ["/q/{}", "/q/{}x", "/q"]),
        ("/q/{}a*", ["/q/{}a", "/q/{}ab", "/q/{}a/b", "/q/{}a.b/c"], ["/q/{}", "/q/{}b", "/q/x{}a"]),
        ("/q/{}*", ["/q/{}", "/q/{}a", "/q/{}/a"], ["/q/", "/q/x{}"]),
        ("/q/{}.*", ["/q/{}.a", "/q/{}.a.b"], ["/q/{}", "/q/{}/a"]),
        ("/q/{}/*/c", ["/q/{}/a/c", "/q/{}/a/b", "/q/{}/x"], ["/q/{}", "/q"]),
        ("/queue/{}/*", ["/queue/{}/a", "/queue/{}/a/b"], ["/queue/{}", "/topic/{}/a"]),
        ("{}*", ["{}", "{}a", "{}/a"], ["/{}"]),
    ],
)
def test_the_text_before_the_star_is_a_prefix(
    client: Clients, compat: BrokerProcess, name: str, pattern: str, matches: list[str], others: list[str]
) -> None:
    wire, publisher = client(to=compat), client(to=compat)
    wire.subscribe(pattern.format(name))
    for destination in [*others, *matches, *others, *matches]:
        publisher.send(frames.send(destination.format(name), destination))
    for destination in [*matches, *matches]:
        wire.expect_message(destination, destination=destination.format(name))
    wire.barrier(publisher)


def test_a_single_star_matches_everything(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(compat="stompica")
    wire, publisher = client(to=broker), client(to=broker)
    wire.subscribe("*")
    for destination in ("/queue/a", "/topic/a", "/q/a/b/c", "a", "a.b", "/"):
        publisher.send(frames.send(destination, destination))
        wire.expect_message(destination, destination=destination)


def test_exact_and_prefix_subscriptions_of_one_client_get_one_copy_each(
    client: Clients, compat: BrokerProcess, name: str
) -> None:
    wire, publisher = client(to=compat), client(to=compat)
    for id, pattern in [("1", f"/q/{name}"), ("2", f"/q/{name}*"), ("3", f"/q/{name[:-1]}*"), ("4", f"/q/{name}/*")]:
        wire.subscribe(pattern, id)
    publisher.send(frames.send(f"/q/{name}", "x"))
    assert {wire.expect_message("x")["subscription"] for _ in range(3)} == {"1", "2", "3"}
    wire.barrier(publisher)


def test_unsubscribe_of_a_prefix_ends_its_messages(client: Clients, compat: BrokerProcess, name: str) -> None:
    wire, publisher = client(to=compat), client(to=compat)
    wire.subscribe(f"/q/{name}*", "1")
    wire.subscribe(f"/q/{name}/a", "2")
    wire.send(frames.unsubscribe("1", receipt="u"))
    wire.expect_receipt("u")
    publisher.send(frames.send(f"/q/{name}/a", "x"))
    wire.expect_message("x", subscription="2")
    wire.barrier(publisher)


@pytest.mark.parametrize("destination", ["*", "/q/*", "/q/a*", "/queue/*/a"])
def test_send_to_a_star_is_an_error(client: Clients, compat: BrokerProcess, destination: str) -> None:
    wire = client(to=compat)
    wire.send(frames.send(destination, "x", receipt="r"))
    wire.expect_error("E-DEST-WILDCARD", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frames.frame("SEND"), "E-DEST-MISSING"),
        (frames.frame("SUBSCRIBE", ("id", "1")), "E-DEST-MISSING"),
        (frames.unsubscribe("nobody"), "E-SUB-UNKNOWN"),
        (frames.subscribe("/q/a", "1") + frames.subscribe("/q/b", "1"), "E-SUB-DUPLICATE"),
        (frames.subscribe("/q/a", "1", ack="never"), "E-ACK-MODE"),
        (frames.frame("SENT", ("destination", "/q/a")), "E-COMMAND"),
        (b"SEND\nno colon here\n\n\0", "E-HEADER"),
        (frames.send("/q/a", "12345", content_length=3), "E-CONTENT-LENGTH"),
        (frames.commit("nobody"), "E-TX-UNKNOWN"),
        (frames.connect("1.2"), "E-CONNECTED"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_of_c_stompica_now_close_the_connection(
    client: Clients, compat: BrokerProcess, version: str, sent: bytes, code: str
) -> None:
    wire = client(version, to=compat)
    wire.send(sent)
    wire.expect_error(code)


def test_known_defects_of_c_stompica_are_not_copied(client: Clients, compat: BrokerProcess, name: str) -> None:
    """Header names by prefix, the last of repeated headers, frames split over segments, bodies over 9.9 kB."""
    wire = client(to=compat)
    wire.subscribe(f"/q/{name}")
    sent = frames.send(
        f"/q/{name}", "x" * 20_000, ("destination-x", "/q/other"), ("destination", "/q/last"), ("receipt-x", "no")
    )
    wire.send_pieces(*(sent[at : at + 997] for at in range(0, len(sent), 997)))
    wire.expect_message("x" * 20_000, destination=f"/q/{name}", receipt_x="no", destination_x="/q/other")
    wire.barrier()


def test_disconnect_closes_the_connection(client: Clients, compat: BrokerProcess) -> None:
    client(to=compat).disconnect()
    wire = client(to=compat)
    wire.send(frames.disconnect())
    wire.expect_closed()
