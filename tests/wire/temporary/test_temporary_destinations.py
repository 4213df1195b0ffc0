"""Temporary destinations and reply-to with plain clients: docs/behaviour.md, section 5."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients, OpenWebSocket
from tests.support.frames import VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, fill, left_in, take
from tests.support.wire import Wire

Open = Callable[[str], Wire]
TRANSPORTS = ["tcp", "ws"]
KINDS = ["/temp-queue/", "/temp-topic/"]
PAIRS = [(one, other) for one in VERSIONS for other in VERSIONS]


@pytest.fixture(params=TRANSPORTS)
def open_session(request: pytest.FixtureRequest, client: Clients, ws: OpenWebSocket) -> Open:
    """Opens a session of this version, over TCP or WebSocket."""
    return client if request.param == "tcp" else ws


def reply_address(owner: Wire, service: Wire, name: str, queue: str) -> str:
    """The address by which others reach the owner's `name`: the reply-to that a service reads in a request."""
    service.subscribe(queue, "service")
    owner.send(frames.send(queue, "request", reply_to=name))
    address = service.expect_message("request", subscription="service")["reply-to"]
    service.send(frames.unsubscribe("service", receipt="u"))
    service.expect_receipt("u")
    return address


# -- request and reply ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "other"), PAIRS)
def test_a_request_is_answered_over_reply_to(
    client: Clients, open_session: Open, queue: str, version: str, other: str
) -> None:
    requester, service = open_session(version), client(other)
    service.subscribe(queue, "service")
    requester.subscribe("/temp-queue/replies", "replies")
    for number in range(5):
        requester.send(frames.send(queue, f"question {number}", ("k", "v"), reply_to="/temp-queue/replies"))
        request = service.expect_message(f"question {number}", k="v", destination=queue)
        service.send(frames.send(request["reply-to"], f"answer {number}", correlation_id=str(number)))
        requester.expect_message(
            f"answer {number}", destination="/temp-queue/replies", subscription="replies", correlation_id=str(number)
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_service_over_websocket_can_reply(client: Clients, ws: OpenWebSocket, queue: str, version: str) -> None:
    requester, service = client(version), ws(version)
    service.subscribe(queue, "service")
    requester.subscribe("/temp-queue/r", "r")
    requester.send(frames.send(queue, "question", reply_to="/temp-queue/r"))
    service.send(frames.send(service.expect_message("question")["reply-to"], "answer"))
    requester.expect_message("answer", destination="/temp-queue/r")


@pytest.mark.parametrize("kind", ["topic", "queue", "worker"])
def test_reply_to_works_whatever_the_request_was_sent_to(client: Clients, topic: str, kind: str) -> None:
    destination = {"topic": topic, "queue": topic.replace("/topic", "/queue"), "worker": f"#{topic}"}[kind]
    requester, service = client(), client()
    service.subscribe(destination)
    requester.subscribe("/temp-queue/r")
    requester.send(frames.send(destination, "question", reply_to="/temp-queue/r"))
    service.send(frames.send(service.expect_message("question")["reply-to"], "answer"))
    requester.expect_message("answer")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reply_waits_until_its_requester_subscribes(client: Clients, queue: str, version: str) -> None:
    """A reply-to alone creates the queue, which keeps the reply like any other queue."""
    requester, service = client(version), client(version)
    address = reply_address(requester, service, "/temp-queue/late", queue)
    fill(service, address, "1", "2", "3")
    requester.send(frames.subscribe("/temp-queue/late"))
    take(requester, "1", "2", "3", destination="/temp-queue/late")


@pytest.mark.parametrize("kind", KINDS)
def test_the_rewritten_name_cannot_be_guessed(client: Clients, queue: str, kind: str) -> None:
    service = client()
    found = set()
    for _ in range(5):
        address = reply_address(client(), service, f"{kind}x", queue)
        match = re.fullmatch(rf"{kind}([0-9a-f]{{32}})/x", address)
        assert match, address
        found.add(match.group(1))
    assert len(found) == 5, "two connections got the same name"
    assert not any(int(one, 16) + 1 == int(other, 16) for one in found for other in found)


def test_a_name_is_rewritten_the_same_way_for_one_connection(client: Clients, queue: str) -> None:
    requester, service = client(), client()
    one = reply_address(requester, service, "/temp-queue/x", queue)
    assert reply_address(requester, service, "/temp-queue/x", queue) == one
    assert reply_address(requester, service, "/temp-queue/y", queue) != one


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["/queue/replies", "/topic/replies", "replies", "#replies", "anything else"])
def test_any_other_reply_to_is_passed_on_unchanged(client: Clients, topic: str, version: str, name: str) -> None:
    wire = client(version)
    wire.subscribe(topic)
    wire.send(frames.send(topic, "x", reply_to=name))
    wire.expect_message("x", reply_to=name)


def test_headers_around_reply_to_keep_their_order(client: Clients, topic: str) -> None:
    wire = client()
    wire.subscribe(topic)
    wire.send(frames.send(topic, "x", ("a", "1"), ("reply-to", "/temp-queue/x"), ("b", "2"), ("reply-to", "second")))
    message = wire.expect_message("x")
    own = [name for name, _ in message.headers if name in ("a", "b", "reply-to")]
    assert own == ["a", "reply-to", "b", "reply-to"]
    assert message.all("reply-to")[0].startswith("/temp-queue/")
    assert message.all("reply-to")[1] == "second"


def test_reply_to_works_in_a_transaction(client: Clients, queue: str) -> None:
    requester, service = client(), client()
    service.subscribe(queue)
    requester.subscribe("/temp-queue/r")
    requester.send(
        frames.begin("t"),
        frames.send(queue, "question", reply_to="/temp-queue/r", transaction="t"),
        frames.commit("t"),
    )
    address = service.expect_message("question")["reply-to"]
    service.send(frames.begin("t"), frames.send(address, "answer", transaction="t"), frames.commit("t"))
    requester.expect_message("answer", destination="/temp-queue/r")


def test_many_requesters_get_their_own_replies(client: Clients, queue: str) -> None:
    service = client()
    service.subscribe(queue)
    requesters = [client(VERSIONS[number % 3]) for number in range(12)]
    for number, requester in enumerate(requesters):
        requester.subscribe("/temp-queue/same")
        requester.send(frames.send(queue, str(number), reply_to="/temp-queue/same"))
    for _ in requesters:
        request = service.expect_message()
        service.send(frames.send(request["reply-to"], request.body))
    for number, requester in enumerate(requesters):
        requester.expect_message(str(number))
        requester.barrier(service)


# -- privacy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_only_the_owner_may_consume(client: Clients, open_session: Open, queue: str, version: str, kind: str) -> None:
    owner, service, intruder = client(version), client(version), open_session(version)
    owner.subscribe(f"{kind}x")
    address = reply_address(owner, service, f"{kind}x", queue)
    intruder.send(frames.subscribe(address, "stolen", receipt="r"))
    intruder.expect_error("E-TEMP-OWNER", receipt_id="r")
    service.send(frames.send(address, "answer"))
    owner.expect_message("answer")


@pytest.mark.parametrize("kind", KINDS)
def test_the_replier_may_not_consume(client: Clients, queue: str, kind: str) -> None:
    owner, service = client(), client()
    address = reply_address(owner, service, f"{kind}x", queue)
    service.send(frames.subscribe(address, "stolen", receipt="r"))
    service.expect_error("E-TEMP-OWNER", receipt_id="r", subscription="stolen")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_names_of_two_connections_are_separate(client: Clients, version: str, kind: str) -> None:
    one, other = client(version), client(version)
    one.subscribe(f"{kind}x")
    other.subscribe(f"{kind}x")
    for number, wire in enumerate((one, other, one)):
        wire.send(frames.send(f"{kind}x", str(number)))
        wire.expect_message(str(number), destination=f"{kind}x")
    one.barrier(other)
    other.barrier(one)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_send_to_an_own_name_that_does_not_exist_is_an_error(client: Clients, version: str, kind: str) -> None:
    other, wire = client(version), client(version)
    other.subscribe(f"{kind}x")
    wire.send(frames.send(f"{kind}x", "x", receipt="r"))
    wire.expect_error("E-TEMP-UNKNOWN", receipt_id="r")
    other.barrier()


@pytest.mark.parametrize("kind", KINDS)
def test_a_wildcard_matches_only_names_of_its_owner(client: Clients, queue: str, kind: str) -> None:
    owner, other, service = client(), client(), client()
    owner.subscribe(f"{kind}*", "all")
    other.subscribe(f"{kind}a", "own")
    for name in ("a", "b", "b/c"):
        address = reply_address(owner, service, f"{kind}{name}", queue)
        service.send(frames.send(address, name))
        owner.expect_message(name, destination=f"{kind}{name}", subscription="all")
    other.send(frames.send(f"{kind}a", "other's"))
    other.expect_message("other's", subscription="own")
    owner.barrier(other)


@pytest.mark.parametrize("pattern", ["*", "/*", ">", "/queue/*"])
def test_other_patterns_do_not_match_temporary_names(client: Clients, clean: BrokerProcess, pattern: str) -> None:
    owner, service, listener = (client(to=clean) for _ in range(3))
    owner.subscribe("/temp-queue/x", "q")
    owner.subscribe("/temp-topic/x", "t")
    listener.subscribe(pattern)
    for id, name in (("q", "/temp-queue/x"), ("t", "/temp-topic/x")):
        service.send_and_wait(reply_address(owner, service, name, "#requests"), "private")
        owner.expect_message("private", subscription=id)
    end = "/queue/end" if pattern == "/queue/*" else "/topic/end"
    service.send(frames.send(end, "end"))
    listener.expect_message("end", destination=end)


# -- end of the connection -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_reply_to_a_vanished_client_is_dropped_with_its_receipt(
    client: Clients, queue: str, version: str, kind: str, loss: str
) -> None:
    owner, service = client(version), client(version)
    detector = LossDetector(owner, service)
    address = reply_address(owner, service, f"{kind}x", queue)
    LOSSES[loss](owner)
    detector.wait()
    service.send_and_wait(address, "too late")
    service.send(frames.begin("t"), frames.send(address, "too late", transaction="t"), frames.commit("t", receipt="c"))
    service.expect_receipt("c")


def test_a_guessed_name_reaches_nobody(client: Clients, queue: str) -> None:
    owner, service = client(), client()
    owner.subscribe("/temp-queue/x")
    address = reply_address(owner, service, "/temp-queue/x", queue)
    middle = address.split("/")[2]
    guess = ("0" if middle[0] != "0" else "1") + middle[1:]
    service.send_and_wait(f"/temp-queue/{guess}/x", "guessed")
    service.send(frames.send(address, "known"))
    owner.expect_message("known")


def test_waiting_messages_end_with_the_owner(client: Clients, queue: str) -> None:
    owner, service = client(), client()
    detector = LossDetector(owner, service)
    address = reply_address(owner, service, "/temp-queue/x", queue)
    fill(service, address, "1", "2")
    owner.reset()
    detector.wait()
    again = client()
    again.subscribe("/temp-queue/x")
    assert reply_address(again, service, "/temp-queue/x", queue) != address
    service.send_and_wait(address, "3")
    again.send(frames.send("/temp-queue/x", "own"))
    again.expect_message("own")


def test_a_subscriber_may_come_and_go_while_the_connection_lives(client: Clients, queue: str) -> None:
    owner, service = client(), client()
    owner.subscribe("/temp-queue/x")
    address = reply_address(owner, service, "/temp-queue/x", queue)
    owner.send(frames.unsubscribe(receipt="u"))
    owner.expect_receipt("u")
    fill(service, address, "1", "2")
    owner.send(frames.subscribe("/temp-queue/x"))
    take(owner, "1", "2")


# -- kinds ---------------------------------------------------------------------------------------------------------


def test_a_temp_queue_gives_each_message_to_one_subscription(client: Clients) -> None:
    owner = client()
    owner.subscribe("/temp-queue/x", "a")
    owner.subscribe("/temp-queue/x", "b")
    owner.send(*(frames.send("/temp-queue/x", str(number)) for number in range(20)))
    found = [owner.expect_message() for _ in range(20)]
    assert sorted(map(int, bodies(found))) == list(range(20))
    assert {message["subscription"] for message in found} == {"a", "b"}
    owner.send(frames.unsubscribe("a"), frames.unsubscribe("b"))
    assert left_in(owner, "/temp-queue/x") == []


def test_a_temp_topic_gives_each_message_to_every_subscription(client: Clients, queue: str) -> None:
    owner, service = client(), client()
    owner.subscribe("/temp-topic/x", "a")
    owner.subscribe("/temp-topic/x", "b")
    address = reply_address(owner, service, "/temp-topic/x", queue)
    for number in range(10):
        service.send(frames.send(address, str(number)))
        found = [owner.expect_message(str(number), destination="/temp-topic/x") for _ in range(2)]
        assert {message["subscription"] for message in found} == {"a", "b"}
    owner.barrier(service)


def test_a_temp_topic_keeps_no_messages(client: Clients, queue: str) -> None:
    owner, service = client(), client()
    address = reply_address(owner, service, "/temp-topic/x", queue)
    service.send_and_wait(address, "nobody listens")
    owner.subscribe("/temp-topic/x")
    service.send(frames.send(address, "now"))
    owner.expect_message("now")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reply_can_be_acknowledged(client: Clients, queue: str, version: str) -> None:
    owner, service = client(version), client(version)
    address = reply_address(owner, service, "/temp-queue/x", queue)
    owner.subscribe("/temp-queue/x", ack="client", prefetch_count=1)
    fill(service, address, "1", "2")
    first = owner.expect_message("1")
    acked = ack_and_wait(owner, first)
    assert bodies(acked or [owner.expect_message()]) == ["2"]
    owner.send(frames.unsubscribe(receipt="u"))
    owner.expect_receipt("u")
    owner.send(frames.subscribe("/temp-queue/x"))
    owner.expect_message("2", redelivered="true", destination="/temp-queue/x")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_send_to_a_temporary_wildcard_is_an_error(client: Clients, version: str, kind: str) -> None:
    wire = client(version)
    wire.send(frames.send(f"{kind}*", "x", receipt="r"))
    wire.expect_error("E-DEST-WILDCARD", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_to_that_nobody_could_answer_is_an_error(client: Clients, version: str, kind: str) -> None:
    """Otherwise a service that answers would be disconnected for its answer."""
    wire = client(version)
    wire.send(frames.send("/queue/requests", "x", receipt="r", reply_to=f"{kind}*"))
    wire.expect_error("E-DEST-WILDCARD", receipt_id="r")
