"""Worker topics `#…`: each message goes to one matching subscription; docs/behaviour.md, sections 5 and 7."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, ack_and_wait, nack
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, fill, left_in, numbered, shares, take, until_receipt
from tests.support.wire import Wire

NUMBERS = numbered(10)


@pytest.fixture
def work(topic: str) -> str:
    """A worker topic that no other test uses."""
    return "#" + topic.removeprefix("/topic/")


def workers(
    client: Clients, topic: str, *patterns: str, version: str = "1.2", **headers: frames.HeaderValue
) -> list[Wire]:
    """A client for each pattern; all subscribe to `topic` too, as `shares` needs."""
    wires = [client(version) for _ in patterns]
    for wire, pattern in zip(wires, patterns, strict=True):
        wire.subscribe(topic, "end")
        wire.subscribe(pattern, "work", **headers)
    return wires


def send_all(publisher: Wire, *destinations: str) -> None:
    """Sends one message to each destination, its number as the body, and waits until every home has it."""
    for number, destination in enumerate(destinations):
        publisher.send(frames.send(destination, str(number), receipt=f"n{number}"))
    for number in range(len(destinations)):
        publisher.expect_receipt(f"n{number}")


def check_balanced(found: Sequence[Sequence[Frame]], total: int) -> None:
    """Checks that every message came once and that no worker was left out.

    Shares are equal only while all connections are written equally fast, which a machine with other load does not
    promise: the home's own tests count them.
    """
    assert sum(map(len, found)) == total
    assert len({message["message-id"] for messages in found for message in messages}) == total
    assert min(map(len, found)) > 0, f"unequal shares: {[len(share) for share in found]}"


# -- one subscription for each message -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_one_subscription_gets_each_message(client: Clients, topic: str, work: str, version: str) -> None:
    wires, publisher = workers(client, topic, *[work] * 4, version=version), client(version)
    fill(publisher, work, *(str(number) for number in range(400)))
    found = shares(publisher, wires, topic, 400)
    check_balanced(found, 400)
    assert sorted(int(body) for messages in found for body in bodies(messages)) == list(range(400))
    for messages in found:
        assert {(message["destination"], message["subscription"]) for message in messages} == {(work, "work")}
        assert bodies(messages) == sorted(bodies(messages), key=int), "a worker gets them in sending order"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_only_subscription_gets_all_in_order(client: Clients, work: str, version: str) -> None:
    wire, publisher = client(version), client(version)
    wire.subscribe(work)
    fill(publisher, work, *NUMBERS)
    take(wire, *NUMBERS, destination=work, redelivered=None)


def test_ten_workers_share_one_destination(client: Clients, topic: str, work: str) -> None:
    wires, publisher = workers(client, topic, *[work] * 10), client()
    fill(publisher, work, *(str(number) for number in range(1000)))
    check_balanced(shares(publisher, wires, topic, 1000), 1000)


def test_ten_wildcard_workers_share_a_thousand_destinations_of_one_message(
    client: Clients, topic: str, work: str
) -> None:
    """If each destination were balanced separately, all would give their only message to the same worker."""
    wires, publisher = workers(client, topic, *[f"{work}/*"] * 10), client()
    send_all(publisher, *(f"{work}/{number}" for number in range(1000)))
    found = shares(publisher, wires, topic, 1000)
    assert sorted(int(body) for messages in found for body in bodies(messages)) == list(range(1000))
    assert min(map(len, found)) > 0, f"unequal shares: {[len(share) for share in found]}"


def test_exact_and_wildcard_workers_share_a_destination(client: Clients, topic: str, work: str) -> None:
    patterns = [f"{work}/a", f"{work}/*", f"{work}/>", f"{work}/a", f"{work}/#"]
    wires, publisher = workers(client, topic, *patterns), client()
    fill(publisher, f"{work}/a", *(str(number) for number in range(500)))
    check_balanced(shares(publisher, wires, topic, 500), 500)
    send_all(publisher, *(f"{work}/b{number}" for number in range(200)))
    found = shares(publisher, wires, topic, 200)
    assert [len(messages) for messages in found][0::3] == [0, 0], "an exact subscription got another destination's"
    assert sum(map(len, found)) == 200
    assert min(len(found[at]) for at in (1, 2, 4)) > 0


def test_two_subscriptions_of_one_connection_share(client: Clients, work: str) -> None:
    wire = client()
    wire.subscribe(work, "a")
    wire.subscribe(work, "b")
    wire.send(*(frames.send(work, str(number)) for number in range(100)))
    found = [wire.expect_message() for _ in range(100)]
    assert bodies(sorted(found, key=lambda message: int(message.text))) == numbered(100)
    counts = Counter(message["subscription"] for message in found)
    assert set(counts) == {"a", "b"} and min(counts.values()) > 0
    wire.barrier()


def test_workers_over_tcp_and_websocket_share(client: Clients, ws: OpenWebSocket, topic: str, work: str) -> None:
    wires: list[Wire] = [*workers(client, topic, work, work)]
    for _ in range(2):
        wires.append(ws())
        wires[-1].subscribe(topic, "end")
        wires[-1].subscribe(work, "work")
    publisher = client()
    fill(publisher, work, *(str(number) for number in range(200)))
    check_balanced(shares(publisher, wires, topic, 200), 200)


def test_a_worker_that_left_gets_no_more_messages(client: Clients, topic: str, work: str) -> None:
    wires, publisher = workers(client, topic, work, work, work), client()
    wires[0].send(frames.unsubscribe("work", receipt="u"))
    wires[0].expect_receipt("u")
    detector = LossDetector(wires[1], publisher)
    wires[1].reset()
    detector.wait()
    fill(publisher, work, *NUMBERS)
    left, stays = shares(publisher, [wires[0], wires[2]], topic, len(NUMBERS))
    assert (left, bodies(stays)) == ([], NUMBERS)


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("/*", ["/a", "/a/b", "/a.b"], ["", "x", ".a"]),
        ("/*/c", ["/a/c", "/b/c"], ["/c", "/a/b/c"]),
        (".*", [".a", ".a.b"], ["/a"]),
        ("*", ["", "x", "/a", ".a"], []),
        ("/>", ["/a", "/a/b"], ["", "x"]),
        ("/#", ["", "/a", "/a/b"], ["x"]),
    ],
)
def test_wildcards_match_worker_topics(
    client: Clients, work: str, pattern: str, matches: list[str], others: list[str]
) -> None:
    wire, publisher = client(), client()
    wire.subscribe(work + pattern)
    send_all(publisher, *(work + name for name in [*others, *matches]))
    found = [wire.expect_message() for _ in matches]
    assert sorted(message["destination"] for message in found) == sorted(work + name for name in matches)
    wire.barrier(publisher)


@pytest.mark.parametrize("pattern", ["#*", "#"])
def test_a_lone_wildcard_after_the_hash_matches_all_worker_topics(
    client: Clients, clean: BrokerProcess, pattern: str
) -> None:
    wire, publisher = client(to=clean), client(to=clean)
    wire.subscribe(pattern)
    send_all(publisher, "/topic/a", "/queue/a", "a")
    for name in ("#a", "#a/b", "#a.b/c"):
        publisher.send(frames.send(name, name))
        wire.expect_message(name, destination=name)
    wire.barrier(publisher)
    assert bodies(left_in(publisher, "/queue/a")) == ["1"]


@pytest.mark.parametrize("pattern", ["*", ">", "/>"])
def test_a_pattern_for_topics_does_not_match_worker_topics(client: Clients, clean: BrokerProcess, pattern: str) -> None:
    wire, publisher = client(to=clean), client(to=clean)
    wire.subscribe(pattern)
    fill(publisher, "#work", "never")
    publisher.send(frames.send("/topic/end", "end"))
    wire.expect_message("end")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("suffix", ["*", "/*", "/a*b", "/>", "/#"])
def test_send_to_a_wildcard_of_worker_topics_is_an_error(client: Clients, work: str, version: str, suffix: str) -> None:
    wire = client(version)
    wire.send(frames.send(work + suffix, "x", receipt="r"))
    wire.expect_error("E-DEST-WILDCARD", receipt_id="r")


# -- stale messages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_without_subscriber_is_dropped(client: Clients, work: str, version: str) -> None:
    wire, publisher = client(version), client(version)
    fill(publisher, work, "gone", "gone too")
    wire.subscribe(work)
    fill(publisher, work, "now")
    wire.expect_message("now")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_subscriber_gets_stale_messages(
    client: Clients, holding: BrokerProcess, topic: str, work: str, version: str
) -> None:
    publisher, first, second = (client(version, to=holding) for _ in range(3))
    fill(publisher, work, *NUMBERS)
    first.subscribe(topic, "end")
    first.send(frames.subscribe(work, receipt="r"))
    assert bodies(until_receipt(first, "r")) == NUMBERS
    second.subscribe(topic, "end")
    second.subscribe(work)
    fill(publisher, work, "a", "b")
    found = shares(publisher, [first, second], topic, 2)
    assert sorted(body for messages in found for body in bodies(messages)) == ["a", "b"]


def test_a_pattern_gets_stale_messages(client: Clients, holding: BrokerProcess, work: str) -> None:
    publisher, wire = client(to=holding), client(to=holding)
    for name in "abc":
        fill(publisher, f"{work}/{name}", *(f"{name}{number}" for number in range(5)))
    fill(publisher, work, "another")
    wire.send(frames.subscribe(f"{work}/*", receipt="r"))
    found = bodies(until_receipt(wire, "r"))
    assert sorted(found) == [f"{name}{number}" for name in "abc" for number in range(5)]
    for name in "abc":
        assert [body for body in found if body.startswith(name)] == [f"{name}{number}" for number in range(5)]


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_the_next_worker_gets_the_messages_of_the_last_one_in_order(
    client: Clients, holding: BrokerProcess, work: str, version: str, mode: str
) -> None:
    last, following, publisher = (client(version, to=holding) for _ in range(3))
    last.subscribe(work, "work", ack=mode, prefetch_count=3)
    fill(publisher, work, *NUMBERS)
    take(last, *NUMBERS[:3])
    last.send(frames.unsubscribe("work", receipt="u"))
    last.expect_receipt("u")
    fill(publisher, work, "10", "11")
    following.send(frames.subscribe(work, receipt="r"))
    found = until_receipt(following, "r")
    assert bodies(found) == [*NUMBERS, "10", "11"]
    assert ["redelivered" in message for message in found] == [True] * 3 + [False] * 9


# -- acknowledgements ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_a_worker_without_credit_is_skipped(client: Clients, topic: str, work: str, version: str, mode: str) -> None:
    (busy,), (free,) = (
        workers(client, topic, work, version=version, ack=mode, prefetch_count=count) for count in (1, 1000)
    )
    publisher = client(version)
    fill(publisher, work, *(str(number) for number in range(20)))
    found = shares(publisher, [busy, free], topic, 20)
    assert [len(messages) for messages in found] == [1, 19]


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_an_ack_gives_a_worker_credit(client: Clients, work: str, version: str, mode: str) -> None:
    wire, publisher = client(version), client(version)
    wire.subscribe(work, ack=mode, prefetch_count=1)
    for number in NUMBERS:
        publisher.send(frames.send(work, number))
        assert ack_and_wait(wire, wire.expect_message(number, redelivered=None)) == []


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
@pytest.mark.parametrize("loss", [*LOSSES, "unsubscribe"])
def test_messages_of_a_lost_worker_go_to_another_one(
    client: Clients, work: str, version: str, mode: str, loss: str
) -> None:
    wire, other, publisher = (client(version) for _ in range(3))
    wire.subscribe(work, "work", ack=mode)
    fill(publisher, work, "1", "2", "3")
    messages = take(wire, "1", "2", "3")
    assert ack_and_wait(wire, messages[0]) == []
    other.subscribe(work, "work")
    if loss == "unsubscribe":
        wire.send(frames.unsubscribe("work"))
    else:
        LOSSES[loss](wire)
    take(other, "2", "3", redelivered="true", delivery_count="2")
    fill(publisher, work, "4")
    other.expect_message("4", redelivered=None)


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_a_nacked_message_goes_to_another_worker(
    client: Clients, quick: BrokerProcess, work: str, version: str, mode: str
) -> None:
    wire, other, publisher = (client(version, to=quick) for _ in range(3))
    wire.subscribe(work, "work", ack=mode)
    fill(publisher, work, "x")
    message = wire.expect_message("x")
    other.subscribe(work, "work", ack=mode)
    wire.send(nack(wire, message))
    again = other.expect_message("x", redelivered="true", delivery_count="2")
    assert again["message-id"] == message["message-id"]


@pytest.mark.parametrize("version", ESCAPING)
def test_a_nacked_message_returns_to_a_lone_worker(
    client: Clients, quick: BrokerProcess, work: str, version: str
) -> None:
    wire = client(version, to=quick)
    wire.subscribe(work, ack="client-individual")
    wire.send(frames.send(work, "x"))
    for count in (None, "2", "3"):
        wire.send(nack(wire, wire.expect_message("x", delivery_count=count)))


def test_a_message_that_fails_goes_to_its_dead_letter_queue(
    client: Clients, shared_broker: StartBroker, work: str
) -> None:
    broker = shared_broker(redelivery_delay="10ms", max_deliveries=2)
    wire, other = client(to=broker), client(to=broker)
    wire.subscribe(work, ack="client-individual")
    other.subscribe(f"/queue/dlq/{work}")
    wire.send(frames.send(work, "x", ("k", "v")))
    for _ in range(2):
        wire.send(nack(wire, wire.expect_message("x")))
    dead = other.expect_message("x", destination=f"/queue/dlq/{work}", k="v", original_destination=work)
    assert (dead["dead-letter-reason"], dead["delivery-count"]) == ("max-deliveries", "2")
