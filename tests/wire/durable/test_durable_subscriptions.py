"""Durable topic subscriptions under the header names of three brokers: docs/behaviour.md 6.

The dialect is how a subscription is made durable: `durable:true` and `id` (RabbitMQ), `activemq.subscriptionName`
(ActiveMQ) or `durable-subscription-name` (Artemis), the last two with the `client-id` of CONNECT.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, ack_and_wait
from tests.support.clients import Clients
from tests.support.frames import VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, fill, fresh, numbered, take, unsubscribe_and_wait, until_receipt
from tests.support.wire import Wire
from tests.support.ws import WebSocket

NUMBERS = numbered(10)
NAMED = {"activemq": "activemq.subscriptionName", "artemis": "durable-subscription-name"}
DIALECTS = ["rabbitmq", *NAMED]
EACH_VERSION = pytest.mark.parametrize("version", VERSIONS)
EACH_DIALECT = pytest.mark.parametrize("dialect", DIALECTS)


@pytest.fixture
def name(topic: str) -> str:
    """A subscription name that no other test uses."""
    return "d-" + topic.removeprefix("/topic/")


class Durable:
    """One durable subscription in its dialect, over several connections."""

    def __init__(self, client: Clients, dialect: str, version: str, topic: str, name: str) -> None:
        self.client = client
        self.dialect = dialect
        self.version = version
        self.topic = topic
        self.name = name

    def connection(self) -> Wire:
        """A session that may hold it."""
        return self.client(self.version, *self.connect_headers)

    @property
    def connect_headers(self) -> list[frames.Header]:
        """The headers of CONNECT that its scope needs."""
        return [] if self.dialect == "rabbitmq" else [("client-id", f"client-of-{self.name}")]

    @property
    def headers(self) -> list[frames.Header]:
        """The headers of SUBSCRIBE and UNSUBSCRIBE that name it, beside the id."""
        return [("durable", "true")] if self.dialect == "rabbitmq" else [(NAMED[self.dialect], self.name)]

    @property
    def id(self) -> str:
        """The subscription's id on its connection."""
        return self.name if self.dialect == "rabbitmq" else "any"

    def attach(self, wire: Wire, topic: str = "", **headers: frames.HeaderValue) -> list[Frame]:
        """Subscribes; returns the MESSAGEs before the RECEIPT."""
        receipt = fresh("attached")
        wire.send(frames.subscribe(topic or self.topic, self.id, *self.headers, receipt=receipt, **headers))
        return until_receipt(wire, receipt)

    def end(self, wire: Wire) -> list[Frame]:
        """Unsubscribes with the same headers; returns the MESSAGEs before the RECEIPT."""
        receipt = fresh("ended")
        wire.send(frames.unsubscribe(self.id, *self.headers, receipt=receipt))
        return until_receipt(wire, receipt)

    def create(self) -> None:
        """Creates the subscription and leaves it inactive."""
        wire = self.connection()
        assert self.attach(wire) == []
        wire.disconnect()

    def resume(self, publisher: Wire, wire: Wire | None = None) -> list[str]:
        """Resumes the subscription; returns the bodies of the kept messages, up to one that is sent now."""
        wire = wire or self.connection()
        found = bodies(self.attach(wire))
        end = fresh("the end of what was kept")
        publisher.send(frames.send(self.topic.replace("*", "end"), end))
        while (body := wire.expect_message(subscription=self.id).text) != end:
            found.append(body)
        return found


# -- messages kept while inactive ----------------------------------------------------------------------------------


@EACH_VERSION
@EACH_DIALECT
def test_messages_are_kept_in_order_while_the_subscriber_is_away(
    client: Clients, topic: str, name: str, version: str, dialect: str
) -> None:
    durable, publisher = Durable(client, dialect, version, topic, name), client(version)
    durable.create()
    fill(publisher, topic, *NUMBERS)
    wire = durable.connection()
    assert durable.resume(publisher, wire) == NUMBERS
    wire.disconnect()
    fill(publisher, topic, "a", "b")
    assert durable.resume(publisher) == ["a", "b"], "what was delivered comes once"


@EACH_VERSION
@EACH_DIALECT
def test_an_active_durable_subscription_behaves_like_any_other(
    client: Clients, topic: str, name: str, version: str, dialect: str
) -> None:
    durable, publisher, plain = Durable(client, dialect, version, topic, name), client(version), client(version)
    wire = durable.connection()
    assert durable.attach(wire) == []
    plain.subscribe(topic)
    pairs = [("a", "1"), ("b", "2"), ("a", "3")]
    publisher.send(frames.send(topic, "x", *pairs))
    for listener in (wire, plain):
        message = listener.expect_message("x", destination=topic, redelivered=None, retained=None)
        assert [pair for pair in message.headers if pair[0] in ("a", "b")] == pairs
        listener.barrier(publisher)


@EACH_DIALECT
def test_an_unsubscribe_without_the_durable_headers_keeps_the_subscription(
    client: Clients, topic: str, name: str, dialect: str
) -> None:
    durable, publisher = Durable(client, dialect, "1.2", topic, name), client()
    wire = durable.connection()
    assert durable.attach(wire) == []
    assert unsubscribe_and_wait(wire, durable.id) == []
    fill(publisher, topic, *NUMBERS)
    wire.barrier(publisher)
    assert durable.resume(publisher, wire) == NUMBERS


@EACH_DIALECT
@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_connection_keeps_the_subscription(
    client: Clients, topic: str, name: str, dialect: str, loss: str
) -> None:
    durable, publisher = Durable(client, dialect, "1.2", topic, name), client()
    wire = durable.connection()
    detector = LossDetector(wire, publisher)
    assert durable.attach(wire) == []
    LOSSES[loss](wire)
    detector.wait()
    fill(publisher, topic, *NUMBERS)
    assert durable.resume(publisher) == NUMBERS


@EACH_DIALECT
def test_kept_messages_do_not_go_to_other_subscribers(client: Clients, topic: str, name: str, dialect: str) -> None:
    durable, publisher, plain = Durable(client, dialect, "1.2", topic, name), client(), client()
    durable.create()
    fill(publisher, topic, "kept")
    plain.subscribe(topic)
    plain.barrier(publisher)
    assert durable.resume(publisher) == ["kept"]


@EACH_DIALECT
def test_a_websocket_resumes_a_subscription_left_by_tcp(
    client: Clients, broker: BrokerProcess, topic: str, name: str, dialect: str
) -> None:
    durable, publisher = Durable(client, dialect, "1.2", topic, name), client()
    durable.create()
    fill(publisher, topic, *NUMBERS)
    with WebSocket.open(broker.port) as wire:
        wire.connect("1.2", *durable.connect_headers)
        assert durable.resume(publisher, wire) == NUMBERS


def test_a_durable_subscription_moves_from_connection_to_connection(client: Clients, topic: str, name: str) -> None:
    """The connections are on different shards; the subscription is the same."""
    durable, publisher = Durable(client, "rabbitmq", "1.2", topic, name), client()
    durable.create()
    for number in range(12):
        fill(publisher, topic, f"{number} a", f"{number} b")
        wire = durable.connection()
        assert durable.resume(publisher, wire) == [f"{number} a", f"{number} b"]
        wire.disconnect()


@EACH_DIALECT
def test_a_subscriber_that_comes_and_goes_gets_each_message_once_and_in_order(
    client: Clients, topic: str, name: str, dialect: str
) -> None:
    durable, publisher = Durable(client, dialect, "1.2", topic, name), client()
    durable.create()
    numbers = numbered(2000)
    found: list[str] = []
    for first in range(0, 2000, 100):
        for number in numbers[first : first + 50]:
            publisher.send(frames.send(topic, number))
        wire = durable.connection()
        found += bodies(durable.attach(wire))
        for number in numbers[first + 50 : first + 100]:
            publisher.send(frames.send(topic, number))
        wire.send(frames.disconnect(receipt="bye"))
        found += bodies(until_receipt(wire, "bye"))
    publisher.send_and_wait(topic, "")
    found += durable.resume(publisher)
    assert found == [*numbers, ""]


def test_messages_of_publishers_on_all_shards_are_kept_in_order(client: Clients, topic: str, name: str) -> None:
    durable, publishers = Durable(client, "rabbitmq", "1.2", topic, name), [client() for _ in range(8)]
    durable.create()
    for number in range(25):
        for who, publisher in enumerate(publishers):
            publisher.send(frames.send(topic, f"{who} {number}"))
    for publisher in publishers:
        publisher.send_and_wait(f"{topic}/other")
        publisher.send_and_wait(topic, "last")
    found = [body for body in durable.resume(publishers[0]) if body != "last"]
    assert len(found) == 200
    for who in range(8):
        assert [body for body in found if body.startswith(f"{who} ")] == [f"{who} {number}" for number in range(25)]


def test_thousands_of_messages_are_kept(client: Clients, topic: str, name: str) -> None:
    durable, publisher = Durable(client, "rabbitmq", "1.2", topic, name), client()
    durable.create()
    numbers = numbered(5000)
    fill(publisher, topic, *numbers)
    assert durable.resume(publisher) == numbers


def test_durable_false_is_a_plain_subscription(client: Clients, topic: str, name: str) -> None:
    wire, publisher = client(), client()
    wire.subscribe(topic, name, durable="false")
    assert unsubscribe_and_wait(wire, name) == []
    fill(publisher, topic, "gone")
    wire.subscribe(topic, name, durable="false")
    wire.barrier(publisher)


@EACH_VERSION
@pytest.mark.parametrize("value", ["yes", "1", "maybe"])
def test_durable_must_be_true_or_false(client: Clients, topic: str, version: str, value: str) -> None:
    wire = client(version)
    wire.send(frames.subscribe(topic, "s", durable=value, receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r", subscription="s")


def test_durable_requires_an_id(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.send(frames.subscribe(topic, None, durable="true", receipt="r"))
    wire.expect_error("E-ID-MISSING", receipt_id="r")


@pytest.mark.parametrize("dialect", NAMED)
def test_a_subscription_name_must_not_be_empty(client: Clients, topic: str, dialect: str) -> None:
    wire = client("1.2", client_id="c")
    wire.send(frames.subscribe(topic, "s", (NAMED[dialect], ""), receipt="r"))
    wire.expect_error("E-VALUE", receipt_id="r")


@EACH_VERSION
def test_durable_has_no_effect_on_a_queue(client: Clients, queue: str, version: str) -> None:
    """Queues keep their messages anyway; two subscriptions of one name are two consumers."""
    one, other = client(version), client(version)
    one.subscribe(queue, "d", durable="true")
    other.subscribe(queue, "d", durable="true")
    fill(client(version), queue, *NUMBERS)
    found = sorted(bodies([wire.expect_message() for wire in (one, other) for _ in range(5)]))
    assert found == NUMBERS


# -- end of the subscription ---------------------------------------------------------------------------------------


@EACH_VERSION
@EACH_DIALECT
def test_unsubscribe_with_the_same_headers_ends_it(
    client: Clients, topic: str, name: str, version: str, dialect: str
) -> None:
    durable, publisher = Durable(client, dialect, version, topic, name), client(version)
    wire = durable.connection()
    assert durable.attach(wire) == []
    assert durable.end(wire) == []
    fill(publisher, topic, "gone")
    assert durable.resume(publisher, wire) == []


@EACH_VERSION
@EACH_DIALECT
def test_a_subscription_can_be_ended_while_it_is_inactive(
    client: Clients, topic: str, name: str, version: str, dialect: str
) -> None:
    durable, publisher = Durable(client, dialect, version, topic, name), client(version)
    durable.create()
    fill(publisher, topic, "thrown away")
    wire = durable.connection()
    assert durable.end(wire) == []
    fill(publisher, topic, "gone")
    assert durable.resume(publisher, wire) == []


@EACH_DIALECT
def test_each_name_keeps_its_own_messages(client: Clients, topic: str, name: str, dialect: str) -> None:
    one, other = (Durable(client, dialect, "1.2", topic, f"{name}-{part}") for part in "ab")
    publisher = client()
    one.create()
    fill(publisher, topic, "1")
    other.create()
    fill(publisher, topic, "2")
    assert one.resume(publisher) == ["1", "2"]
    assert [body for body in other.resume(publisher) if "end of" not in body] == ["2"]


# -- several holders, scope of names -------------------------------------------------------------------------------


@EACH_VERSION
def test_two_holders_of_a_rabbitmq_subscription_share_it(client: Clients, topic: str, name: str, version: str) -> None:
    durable, publisher = Durable(client, "rabbitmq", version, topic, name), client(version)
    holders = [durable.connection() for _ in range(2)]
    for holder in holders:
        assert durable.attach(holder) == []
    # each holder gets some of the ten last messages, behind its share of the others
    publisher.send(*(frames.send(topic, str(number)) for number in range(100)), *[frames.send(topic, "end")] * 10)
    found: list[list[int]] = []
    for holder in holders:
        found.append([])
        while (body := holder.expect_message().text) != "end":
            found[-1].append(int(body))
        assert found[-1] == sorted(found[-1])
    assert sorted(found[0] + found[1]) == list(range(100))
    assert min(map(len, found)) >= 25


def test_the_remaining_holder_gets_all_messages(client: Clients, topic: str, name: str) -> None:
    durable, publisher = Durable(client, "rabbitmq", "1.2", topic, name), client()
    one, other = durable.connection(), durable.connection()
    assert durable.attach(one, ack="client-individual") == durable.attach(other) == []
    publisher.send(frames.send(topic, "1"), frames.send(topic, "2"))
    held, _ = one.expect_message(), other.expect_message()
    one.reset()
    other.expect_message(held.text, redelivered="true")
    fill(publisher, topic, *NUMBERS)
    take(other, *NUMBERS)


@EACH_VERSION
@pytest.mark.parametrize("dialect", NAMED)
def test_a_second_active_holder_is_an_error(client: Clients, topic: str, name: str, version: str, dialect: str) -> None:
    durable, publisher = Durable(client, dialect, version, topic, name), client(version)
    holder, second = durable.connection(), durable.connection()
    assert durable.attach(holder) == []
    second.send(frames.subscribe(topic, "second", *durable.headers, receipt="r"))
    second.expect_error("E-DURABLE-IN-USE", receipt_id="r", subscription="second")
    publisher.send(frames.send(topic, "x"))
    holder.expect_message("x")
    holder.disconnect()
    fill(publisher, topic, "y")
    assert durable.resume(publisher) == ["y"]


@pytest.mark.parametrize("dialect", NAMED)
def test_a_holder_that_left_does_not_block_the_next(client: Clients, topic: str, name: str, dialect: str) -> None:
    durable = Durable(client, dialect, "1.2", topic, name)
    for _ in range(10):
        wire = durable.connection()
        assert durable.attach(wire) == []
        wire.disconnect()


def session(client: Clients, scope: dict[str, str]) -> Wire:
    """A session with these headers in its CONNECT."""
    return client("1.2", *scope.items())


A_LOGIN, A_CLIENT = {"login": "a"}, {"client-id": "a"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (A_LOGIN, {"login": "b"}),
        (A_CLIENT, {"client-id": "b"}),
        (A_CLIENT, {}),
        (A_LOGIN, {}),
        (A_LOGIN | {"client-id": "c"}, {"login": "b", "client-id": "c"}),
        (A_LOGIN | {"client-id": "c"}, A_LOGIN | {"client-id": "d"}),
        (A_LOGIN | {"client-id": "c"}, A_LOGIN),
    ],
)
def test_equal_names_of_different_logins_or_clients_are_separate(
    client: Clients, topic: str, name: str, one: dict[str, str], other: dict[str, str]
) -> None:
    publisher = client()
    for scope in (one, other):
        wire = session(client, scope)
        wire.subscribe(topic, name, durable="true")
        wire.disconnect()
    fill(publisher, topic, *NUMBERS)
    for scope in (one, other):
        wire = session(client, scope)
        wire.send(frames.subscribe(topic, name, durable="true"))
        take(wire, *NUMBERS)
        wire.send(frames.unsubscribe(name, durable="true", receipt="u"))
        assert until_receipt(wire, "u") == []


@pytest.mark.parametrize("scope", [A_LOGIN | {"client-id": "c"}, A_CLIENT, A_LOGIN, {}])
def test_the_same_login_and_client_resume_the_subscription(
    client: Clients, topic: str, name: str, scope: dict[str, str]
) -> None:
    publisher, wire = client(), session(client, scope)
    wire.subscribe(topic, name, durable="true")
    wire.disconnect()
    fill(publisher, topic, *NUMBERS)
    wire = session(client, scope)
    wire.send(frames.subscribe(topic, name, durable="true"))
    take(wire, *NUMBERS)


@EACH_VERSION
@EACH_DIALECT
@pytest.mark.parametrize("active", [True, False], ids=["active", "away"])
def test_a_name_belongs_to_one_destination(
    client: Clients, topic: str, name: str, version: str, dialect: str, active: bool
) -> None:
    durable, publisher = Durable(client, dialect, version, topic, name), client(version)
    holder = durable.connection()
    assert durable.attach(holder) == []
    if not active:
        holder.disconnect()
    wire = durable.connection()
    wire.send(frames.subscribe(f"{topic}/other", durable.id, *durable.headers, receipt="r"))
    wire.expect_error("E-DURABLE-OTHER", receipt_id="r", subscription=durable.id)
    if active:
        holder.disconnect()
    fill(publisher, topic, "x")
    assert durable.resume(publisher) == ["x"]


@EACH_DIALECT
def test_an_ended_name_is_free_for_another_destination(client: Clients, topic: str, name: str, dialect: str) -> None:
    durable, publisher = Durable(client, dialect, "1.2", topic, name), client()
    wire = durable.connection()
    assert durable.attach(wire) == durable.end(wire) == []
    assert durable.attach(wire, topic=f"{topic}/other") == []
    publisher.send(frames.send(topic, "gone"), frames.send(f"{topic}/other", "x"))
    wire.expect_message("x")


# -- wildcards -----------------------------------------------------------------------------------------------------


@EACH_VERSION
@EACH_DIALECT
def test_a_durable_pattern_keeps_the_messages_it_matches(
    client: Clients, topic: str, name: str, version: str, dialect: str
) -> None:
    durable, publisher = Durable(client, dialect, version, f"{topic}/*", name), client(version)
    durable.create()
    for number in NUMBERS:
        publisher.send_and_wait(f"{topic}/{number}", f"1 {number}")
        publisher.send_and_wait(f"{topic}-{number}", "another")
        publisher.send_and_wait(f"{topic}/{number}", f"2 {number}")
    assert durable.resume(publisher) == [f"{part} {number}" for number in NUMBERS for part in (1, 2)]


def test_a_kept_message_names_the_destination_of_its_send(client: Clients, topic: str, name: str) -> None:
    durable, publisher = Durable(client, "rabbitmq", "1.2", f"{topic}/>", name), client()
    durable.create()
    publisher.send_and_wait(f"{topic}/a/b", "x")
    wire = durable.connection()
    found = durable.attach(wire) or [wire.expect_message()]
    assert [message["destination"] for message in found] == [f"{topic}/a/b"]


# -- acknowledgements ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
@EACH_DIALECT
def test_unacknowledged_messages_are_redelivered(
    client: Clients, topic: str, name: str, version: str, mode: str, dialect: str
) -> None:
    durable, publisher = Durable(client, dialect, version, topic, name), client(version)
    wire = durable.connection()
    detector = LossDetector(wire, publisher)
    assert durable.attach(wire, ack=mode) == []
    fill(publisher, topic, *"12345")
    messages = take(wire, *"12345", redelivered=None)
    assert ack_and_wait(wire, messages[1]) == []
    wire.reset()
    detector.wait()
    fill(publisher, topic, "6")
    wire = durable.connection()
    durable_again = durable.attach(wire, ack=mode)
    left = [*"345"] if mode == "client" else [*"1345"]
    durable_again += [wire.expect_message() for _ in range(len(left) + 1 - len(durable_again))]
    assert bodies(durable_again) == [*left, "6"]
    assert [message.header("redelivered") for message in durable_again] == ["true"] * len(left) + [None]
    assert {message.header("delivery-count") for message in durable_again[:-1]} == {"2"}


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_prefetch_applies_to_kept_messages(client: Clients, topic: str, name: str, version: str, mode: str) -> None:
    durable, publisher = Durable(client, "rabbitmq", version, topic, name), client(version)
    durable.create()
    fill(publisher, topic, *NUMBERS)
    wire = durable.connection()
    found = durable.attach(wire, ack=mode, prefetch_count=3)
    found += [wire.expect_message() for _ in range(3 - len(found))]
    wire.barrier(publisher)
    found += ack_and_wait(wire, found[2])
    given = 6 if mode == "client" else 4
    found += [wire.expect_message() for _ in range(given - len(found))]
    assert bodies(found) == NUMBERS[:given]
    wire.barrier(publisher)
