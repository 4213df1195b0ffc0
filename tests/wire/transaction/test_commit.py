"""The effect of transactions: atomic COMMIT over queues and topics, ACK and NACK in a transaction, aborts.

docs/behaviour.md 3; docs/specification.md 72 to 74. The frames themselves are tested in test_transaction_frames.py.
"""

from __future__ import annotations

import itertools

import pytest

from tests.support import frames
from tests.support.acks import CLIENT_MODES, VERSION_COMMAND, ack, nack
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.clock import wait_ms
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.losses import LOSSES, LossDetector
from tests.support.parser import Frame
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, fill, left_in, numbered, take, until_receipt
from tests.support.wire import Wire

INDIVIDUAL = "client-individual"
NUMBERS = numbered(10)


@pytest.fixture
def tight(shared_broker: StartBroker) -> BrokerProcess:
    """A broker with small limits for queues and transactions."""
    return shared_broker(max_queue_length=5, max_transactions=3, max_transaction_size=2000)


def held(wire: Wire, queue: str, *expected: str, mode: str = "", **headers: frames.HeaderValue) -> list[Frame]:
    """Consumes these messages without acknowledging them; by default in the strictest mode of the version."""
    mode = mode or ("client" if wire.version == "1.0" else INDIVIDUAL)
    wire.send(frames.subscribe(queue, "held", ack=mode, **headers))
    return take(wire, *expected)


def commit(wire: Wire, transaction: str = "t") -> None:
    """Sends COMMIT; its RECEIPT must be the next frame."""
    wire.send(frames.commit(transaction, receipt=f"committed {transaction}"))
    wire.expect_receipt(f"committed {transaction}")


# -- SEND ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_reach_the_consumer_of_a_queue_at_commit(client: Clients, queue: str, version: str) -> None:
    consumer, publisher = client(version), client(version)
    consumer.subscribe(queue)
    publisher.send(frames.begin("t"))
    for number in range(3):
        publisher.send(frames.send(queue, str(number), transaction="t", receipt=f"r{number}"))
        publisher.expect_receipt(f"r{number}")
    publisher.send_and_wait(queue, "outside")
    consumer.expect_message("outside")
    commit(publisher)
    take(consumer, "0", "1", "2", transaction=None, receipt=None)
    publisher.send(frames.send(queue, "end"))
    consumer.expect_message("end")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_message_is_in_the_queue_before_commit(client: Clients, queue: str, version: str) -> None:
    publisher, other = client(version), client(version)
    publisher.send(frames.begin("t"), frames.send(queue, "x", transaction="t", receipt="r"))
    publisher.expect_receipt("r")
    assert left_in(other, queue) == []
    commit(publisher)
    assert bodies(left_in(other, queue)) == ["x"]


@pytest.mark.parametrize("version", VERSIONS)
def test_abort_drops_messages_to_queues(client: Clients, queue: str, version: str) -> None:
    publisher, other = client(version), client(version)
    publisher.send(frames.begin("t"), frames.send(queue, "never", transaction="t"), frames.abort("t", receipt="a"))
    publisher.expect_receipt("a")
    assert left_in(other, queue) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_end_of_the_connection_drops_messages_to_queues(
    client: Clients, queue: str, version: str, loss: str
) -> None:
    publisher, other = client(version), client(version)
    detector = LossDetector(publisher, other)
    publisher.send(frames.begin("t"), frames.send(queue, "never", transaction="t", receipt="r"))
    publisher.expect_receipt("r")
    LOSSES[loss](publisher)
    detector.wait()
    assert left_in(other, queue) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_committed_message_is_delivered_like_any_other(client: Clients, queue: str, version: str) -> None:
    """It has its headers in order, an id of its own, and no header of the transaction."""
    wire = client(version)
    pairs = [("a", "1"), ("b", "2"), ("a", "3")]
    wire.send(frames.begin("t"), *(frames.send(queue, "x", *pairs, transaction="t") for _ in range(3)))
    commit(wire)
    messages = held(wire, queue, "x", "x", "x")
    assert len({message["message-id"] for message in messages}) == 3
    for message in messages:
        assert [pair for pair in message.headers if pair[0] in ("a", "b")] == pairs
        assert message["destination"] == queue
        assert "transaction" not in message and "redelivered" not in message


# -- atomicity -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_receipt_of_commit_means_that_all_took_effect(
    client: Clients, topic: str, queue: str, version: str
) -> None:
    publisher, other = client(version), client(version)
    topics = [f"{topic}/{number}" for number in range(4)]
    queues = [f"{queue}/{number}" for number in range(4)]
    listeners = [client(version) for _ in topics]
    for listener, name in zip(listeners, topics, strict=True):
        listener.subscribe(name)
    fill(other, f"{queue}/in", "acknowledged", "held")
    message, _ = held(publisher, f"{queue}/in", "acknowledged", "held")
    publisher.send(frames.begin("t"), ack(publisher, message, transaction="t"))
    for number in NUMBERS:
        publisher.send(*(frames.send(name, number, transaction="t") for name in topics + queues))
    for listener in listeners:
        listener.barrier(publisher)
    commit(publisher)
    for name in queues:
        assert bodies(left_in(other, name)) == NUMBERS
    for listener in listeners:
        take(listener, *NUMBERS)
        listener.barrier(publisher)
    publisher.reset()
    other.send(frames.subscribe(f"{queue}/in", "again"))
    other.expect_message("held", redelivered="true")


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_a_transaction_stay_together(client: Clients, topic: str, queue: str, version: str) -> None:
    """Three publishers at once, two with transactions and one without, send to the same destinations."""
    rounds, size = 20, 4
    destinations = [f"{topic}/a", f"{topic}/b", f"{queue}/a", f"{queue}/b"]
    listeners = [client(version) for _ in destinations]
    for listener, destination in zip(listeners, destinations, strict=True):
        listener.subscribe(destination)
    publishers = {name: client(version) for name in ("p", "q", "plain")}
    for number in range(rounds):
        for name, publisher in publishers.items():
            transaction = None if name == "plain" else f"t{number}"
            sends = [
                frames.send(destination, f"{name} {number} {part}", transaction=transaction)
                for part in range(size)
                for destination in destinations
            ]
            if transaction:
                sends = [frames.begin(transaction), *sends, frames.commit(transaction)]
            publisher.send(*sends)
    for listener in listeners:
        found = [listener.expect_message().text for _ in range(3 * rounds * size)]
        for name in publishers:
            own = [body for body in found if body.startswith(f"{name} ")]
            assert own == [f"{name} {number} {part}" for number in range(rounds) for part in range(size)]
        groups = [key for key, _ in itertools.groupby(found, key=lambda body: body.rsplit(" ", 1)[0])]
        committed = [key for key in groups if not key.startswith("plain")]
        assert len(committed) == 2 * rounds, f"something stands inside a transaction: {found}"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_connection_lost_around_commit_leaves_all_or_nothing(client: Clients, queue: str, version: str) -> None:
    """Every second COMMIT is cut off, inside or before its frame; the others are sent whole before the reset."""
    names = [f"{queue}/{number}" for number in range(4)]
    wire = client(version)
    for number in range(20):
        publisher = client(version)
        sends = [frames.send(name, f"{number} {part}", transaction="t") for part in "ab" for name in names]
        whole = b"".join([frames.begin("t"), *sends, frames.commit("t")])
        publisher.send(whole[: len(whole) - (number * 5 if number % 2 else 0)])
        publisher.reset()
    wait_ms(wire, 100)
    first, *others = [bodies(left_in(wire, name)) for name in names]
    assert not [body for body in first if int(body.split()[0]) % 2], "a transaction without COMMIT took effect"
    assert first == [f"{number} {part}" for number in (body.split()[0] for body in first[::2]) for part in "ab"]
    for other in others:
        assert sorted(other) == sorted(first), "a transaction took effect in part"


@pytest.mark.parametrize("version", VERSIONS)
def test_all_messages_of_a_transaction_become_visible_together(client: Clients, queue: str, version: str) -> None:
    """When one queue's consumer has its message, the other queues have theirs, in front of later messages."""
    publisher, consumer, other = (client(version) for _ in range(3))
    for number in range(100):
        one, two = (f"{queue}/{number}/{name}" for name in "ab")
        consumer.subscribe(one, str(number))
        publisher.send(frames.begin("t"), *(frames.send(name, "x", transaction="t") for name in (one, two)))
        publisher.send(frames.commit("t"))
        consumer.expect_message("x", destination=one)
        assert bodies(left_in(other, two)) == ["x"]


@pytest.mark.parametrize("version", VERSIONS)
def test_transactions_on_queues_run_side_by_side(client: Clients, queue: str, version: str) -> None:
    wire, other = client(version), client(version)
    fill(other, f"{queue}/in", "0", "1", "2")
    messages = held(wire, f"{queue}/in", "0", "1", "2")
    wire.send(frames.begin("a"), frames.begin("b"))
    for number in range(4):
        for name in "ab":
            wire.send(frames.send(queue, f"{name}{number}", transaction=name))
    wire.send(ack(wire, messages[0], transaction="b"), ack(wire, messages[1], transaction="a"))
    wire.send(frames.commit("b"), frames.abort("a", receipt="done"))
    wire.expect_receipt("done")
    assert bodies(left_in(other, queue)) == ["b0", "b1", "b2", "b3"]
    wire.disconnect()
    other.send(frames.subscribe(f"{queue}/in", "again"))
    take(other, "1", "2", redelivered="true")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_may_hold_thousands_of_messages(client: Clients, topic: str, queue: str, version: str) -> None:
    count = 6000
    destinations = [queue, f"{queue}/other", topic]
    listeners = [client(version) for _ in destinations]
    for listener, destination in zip(listeners, destinations, strict=True):
        listener.subscribe(destination)
    publisher = client(version)
    publisher.send(frames.begin("t"))
    sends = (frames.send(destinations[number % 3], str(number), transaction="t") for number in range(count))
    publisher.send(*sends, frames.commit("t", receipt="c"))
    for first, listener in enumerate(listeners):
        take(listener, *(str(number) for number in range(first, count, 3)))
    publisher.expect_receipt("c")


@pytest.mark.parametrize("version", VERSIONS)
def test_transactions_work_over_websocket(client: Clients, ws: OpenWebSocket, queue: str, version: str) -> None:
    wire, publisher, victim = client(version), ws(version), ws(version)
    consumer = ws(version)
    consumer.subscribe(f"{queue}/a")
    for socket in (publisher, victim):
        sends = (frames.send(f"{queue}/{name}", str(number), transaction="t") for number in range(3) for name in "ab")
        socket.send(frames.begin("t", receipt="b"), *sends)
        socket.expect_receipt("b")
    victim.disconnect()
    commit(publisher)
    take(consumer, "0", "1", "2")
    assert bodies(left_in(wire, f"{queue}/b")) == ["0", "1", "2"]
    consumer.send(frames.send(f"{queue}/a", "end"))
    consumer.expect_message("end")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_may_span_every_kind_of_destination(
    client: Clients, topic: str, queue: str, version: str
) -> None:
    publisher, wire = client(version), client(version)
    names = {"topic": topic, "queue": queue, "worker": f"#{topic}", "temporary": "/temp-queue/t"}
    for id, name in names.items():
        (publisher if id == "temporary" else wire).subscribe(name, id)
    wire.subscribe(f"{topic}/durable", "durable", durable="true")
    wire.send(frames.unsubscribe("durable", receipt="away"))
    wire.expect_receipt("away")
    publisher.send(frames.begin("t"))
    publisher.send(*(frames.send(name, id, transaction="t") for id, name in names.items()))
    publisher.send(frames.send(f"{topic}/durable", "durable", transaction="t"))
    publisher.send(frames.send(f"{topic}/retained", "retained", transaction="t", retain="set", receipt="r"))
    publisher.expect_receipt("r")
    wire.subscribe(f"{topic}/retained", "too early")
    wire.barrier(publisher)
    wire.send(frames.unsubscribe("too early", receipt="u"))
    wire.expect_receipt("u")
    publisher.send(frames.commit("t", receipt="c"))
    assert sorted(publisher.recv_frame().command for _ in range(2)) == ["MESSAGE", "RECEIPT"]
    assert sorted(wire.expect_message().text for _ in range(3)) == ["queue", "topic", "worker"]
    wire.send(frames.subscribe(f"{topic}/durable", "durable", durable="true"))
    wire.expect_message("durable")
    wire.send(frames.subscribe(f"{topic}/retained", "retained"))
    wire.expect_message("retained", retained="true")
    wire.send(frames.unsubscribe("durable", durable="true", receipt="ended"))
    wire.expect_receipt("ended")


# -- ACK and NACK --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
@pytest.mark.parametrize("end", ["COMMIT", "ABORT", *LOSSES])
def test_an_ack_takes_effect_only_if_committed(client: Clients, queue: str, version: str, mode: str, end: str) -> None:
    wire, other = client(version), client(version)
    fill(other, queue, "1", "2", "3")
    messages = held(wire, queue, "1", "2", "3", mode=mode)
    wire.send(frames.begin("t"), ack(wire, messages[1], transaction="t", receipt="r"))
    wire.expect_receipt("r")
    if end in LOSSES:
        LOSSES[end](wire)
    else:
        wire.send(frames.frame(end, ("transaction", "t"), ("receipt", "e")))
        wire.expect_receipt("e")
        wire.reset()
    left = {"client": ["3"], INDIVIDUAL: ["1", "3"]}[mode] if end == "COMMIT" else ["1", "2", "3"]
    other.send(frames.subscribe(queue, "again"))
    take(other, *left, redelivered="true")
    other.send(frames.send(queue, "end"))
    other.expect_message("end", redelivered=None)


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_an_ack_gives_credit_at_commit(client: Clients, queue: str, version: str, mode: str) -> None:
    wire, other = client(version), client(version)
    fill(other, queue, "1", "2")
    (message,) = held(wire, queue, "1", mode=mode, prefetch_count=1)
    wire.send(frames.begin("t"), ack(wire, message, transaction="t", receipt="r"))
    wire.expect_receipt("r")
    fill(other, queue, "3")
    wire.barrier(other)
    wire.send(frames.commit("t", receipt="c"))
    assert sorted((wire.recv_frame().command, wire.recv_frame().command)) == ["MESSAGE", "RECEIPT"]
    wire.barrier(other)


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_after_abort_a_message_can_be_acknowledged_again(client: Clients, queue: str, version: str, mode: str) -> None:
    wire, other = client(version), client(version)
    fill(other, queue, "1", "2")
    message, _ = held(wire, queue, "1", "2", mode=mode)
    for number in range(3):
        wire.send(frames.begin("t"), ack(wire, message, transaction="t"), frames.abort("t", receipt=str(number)))
        wire.expect_receipt(str(number))
    wire.send(frames.begin("t"), ack(wire, message, transaction="t"))
    commit(wire)
    wire.reset()
    other.send(frames.subscribe(queue, "again"))
    other.expect_message("2", redelivered="true")


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("mode", ["client", INDIVIDUAL])
def test_a_nack_takes_effect_at_commit(
    client: Clients, shared_broker: StartBroker, queue: str, version: str, mode: str
) -> None:
    broker = shared_broker(redelivery_delay="10ms")
    wire, other = client(version, to=broker), client(version, to=broker)
    fill(other, queue, "1")
    (message,) = held(wire, queue, "1", mode=mode, prefetch_count=1)
    other.subscribe(queue, "other", ack=mode)
    wire.send(frames.begin("t"), nack(wire, message, transaction="t", receipt="r"))
    wire.expect_receipt("r")
    wait_ms(other, 50)
    other.send(frames.send(queue, "2"))
    other.expect_message("2")
    commit(wire)
    again = other.expect_message("1", redelivered="true", delivery_count="2")
    assert again["message-id"] == message["message-id"]


@pytest.mark.parametrize("version", ESCAPING)
def test_an_aborted_nack_is_not_a_failed_delivery(
    client: Clients, shared_broker: StartBroker, queue: str, version: str
) -> None:
    broker = shared_broker(redelivery_delay="10ms")
    wire = client(version, to=broker)
    fill(wire, queue, "1")
    (message,) = held(wire, queue, "1")
    wire.send(frames.begin("t"), nack(wire, message, transaction="t"), frames.abort("t"), nack(wire, message))
    wire.expect_message("1", redelivered="true", delivery_count="2")


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_an_unknown_ack_in_a_transaction_is_an_error_at_once(
    client: Clients, queue: str, version: str, mode: str
) -> None:
    wire, other = client(version), client(version)
    fill(other, queue, "1")
    (message,) = held(wire, queue, "1", mode=mode)
    wire.send(frames.begin("t"), frames.send(f"{queue}/out", "never", transaction="t"))
    wire.send(ack(wire, message, transaction="t"))
    wire.send(frames.ack(id="x", message_id="x", subscription="held", transaction="t", receipt="r"))
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="r")
    other.send(frames.subscribe(queue, "again"))
    other.expect_message("1", redelivered="true")
    assert left_in(client(version), f"{queue}/out") == []


@pytest.mark.parametrize(("version", "mode"), CLIENT_MODES)
def test_a_delivery_acknowledged_by_commit_is_settled(client: Clients, queue: str, version: str, mode: str) -> None:
    wire = client(version)
    fill(wire, queue, "1")
    (message,) = held(wire, queue, "1", mode=mode)
    wire.send(frames.begin("t"), ack(wire, message, transaction="t"))
    commit(wire)
    wire.send(ack(wire, message, receipt="r"))
    wire.expect_error("E-ACK-UNKNOWN", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_passed_on_in_transactions_are_passed_on_once(client: Clients, queue: str, version: str) -> None:
    """ACK of the input and SEND of the output go together; each worker is lost with one transaction open."""
    other = client(version)
    numbers = numbered(30)
    fill(other, f"{queue}/in", *numbers)
    for first in range(0, 30, 5):
        worker = client(version)
        detector = LossDetector(worker, client(version))
        messages = held(worker, f"{queue}/in", *numbers[first : first + 6], prefetch_count=6)
        for message in messages:
            worker.send(
                frames.begin("t"),
                frames.send(f"{queue}/out", message.body, transaction="t"),
                ack(worker, message, transaction="t", receipt=message.text),
            )
            until_receipt(worker, message.text)
            if message is not messages[5 if len(messages) > 5 else -1]:
                worker.send(frames.commit("t", receipt="c"))
                until_receipt(worker, "c")
        worker.reset()
        detector.wait()
    other.send(frames.subscribe(f"{queue}/in", "rest"))
    take(other, "29", redelivered="true")
    assert bodies(left_in(other, f"{queue}/out")) == numbers[:29]


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_commit_is_an_error_and_sends_nothing(client: Clients, queue: str, version: str) -> None:
    wire, other = client(version), client(version)
    wire.send(frames.begin("t"), frames.send(queue, "once", transaction="t"))
    commit(wire)
    wire.send(frames.commit("t", receipt="2"))
    wire.expect_error("E-TX-UNKNOWN", receipt_id="2")
    assert bodies(left_in(other, queue)) == ["once"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_begin_aborts_the_transaction(client: Clients, queue: str, version: str) -> None:
    wire, other = client(version), client(version)
    wire.send(frames.begin("t"), frames.send(queue, "never", transaction="t"), frames.begin("t", receipt="2"))
    wire.expect_error("E-TX-OPEN", receipt_id="2")
    assert left_in(other, queue) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_name_can_be_used_again_on_queues(client: Clients, queue: str, version: str) -> None:
    wire, other = client(version), client(version)
    numbers = range(20)
    for number in numbers:
        end = frames.abort if number % 4 == 3 else frames.commit
        wire.send(frames.begin("t"), frames.send(queue, str(number), transaction="t"), end("t", receipt=str(number)))
    for number in numbers:
        wire.expect_receipt(str(number))
    assert bodies(left_in(other, queue)) == [str(number) for number in numbers if number % 4 != 3]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_into_a_full_queue_has_no_effect_anywhere(
    client: Clients, tight: BrokerProcess, topic: str, queue: str, version: str
) -> None:
    wire, listener, other = client(version, to=tight), client(version, to=tight), client(version, to=tight)
    listener.subscribe(topic)
    fill(other, f"{queue}/full", *"12345")
    fill(other, f"{queue}/in", "in")
    (message,) = held(wire, f"{queue}/in", "in")
    wire.send(
        frames.begin("t"),
        frames.send(topic, "never", transaction="t"),
        frames.send(f"{queue}/a", "never", transaction="t"),
        frames.send(f"{queue}/full", "never", transaction="t", receipt="accepted"),
        frames.send(f"{queue}/b", "never", transaction="t"),
        ack(wire, message, transaction="t"),
        frames.commit("t", receipt="c"),
    )
    wire.expect_receipt("accepted")
    wire.expect_error("E-QUEUE-FULL", receipt_id="c")
    other.send(frames.subscribe(f"{queue}/in", "again"))
    other.expect_message("in", redelivered="true")
    assert left_in(other, f"{queue}/a") == left_in(other, f"{queue}/b") == []
    other.send(frames.subscribe(f"{queue}/full", "full"))
    take(other, *"12345")
    other.send(frames.send(f"{queue}/full", "end"))
    other.expect_message("end")
    listener.barrier(other)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_counts_as_a_whole_against_the_limit_of_a_queue(
    client: Clients, tight: BrokerProcess, queue: str, version: str
) -> None:
    wire, other = client(version, to=tight), client(to=tight)
    wire.send(frames.begin("fits"), *(frames.send(f"{queue}/a", body, transaction="fits") for body in "12345"))
    commit(wire, "fits")
    wire.send(frames.begin("t"), *(frames.send(f"{queue}/b", body, transaction="t") for body in "123456"))
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_error("E-QUEUE-FULL", receipt_id="c")
    assert left_in(other, f"{queue}/b") == []
    other.send(frames.subscribe(f"{queue}/a"))
    take(other, *"12345")


def test_transactions_that_race_for_room_are_whole_or_refused(
    client: Clients, tight: BrokerProcess, queue: str
) -> None:
    """Each of three queues has room for one of six transactions, which name the queues in different orders."""
    other = client(to=tight)
    for attempt in range(5):
        names = [f"{queue}/{attempt}/{name}" for name in "abc"]
        wires = [client(to=tight) for _ in range(6)]
        for wire, order in zip(wires, itertools.permutations(names), strict=True):
            wire.send(frames.begin("t"))
            wire.send(*(frames.send(name, f"{wire.local_port}", transaction="t") for name in order for _ in range(3)))
        for wire in wires:
            wire.send(frames.commit("t", receipt="c"))
        answers = {str(wire.local_port): wire.recv_frame() for wire in wires}
        refused = [answer["code"] for answer in answers.values() if answer.command == "ERROR"]
        assert set(refused) == {"E-QUEUE-FULL"}
        assert len(refused) >= 5
        taken = [port for port, answer in answers.items() if answer.command == "RECEIPT"]
        for name in names:
            assert bodies(left_in(other, name)) == taken * 3


def test_a_refused_commit_leaves_no_reservation_behind(client: Clients, tight: BrokerProcess, queue: str) -> None:
    other = client(to=tight)
    fill(other, f"{queue}/full", *"12345")
    for _ in range(3):
        wire = client(to=tight)
        wire.send(frames.begin("t"), *(frames.send(f"{queue}/a", "never", transaction="t") for _ in range(4)))
        wire.send(frames.send(f"{queue}/full", "never", transaction="t"), frames.commit("t"))
        wire.expect_error("E-QUEUE-FULL")
    fill(other, f"{queue}/a", *"12345")
    other.send(frames.subscribe(f"{queue}/a"))
    take(other, *"12345")


def test_a_commit_that_would_make_one_destination_too_many_has_no_effect(
    client: Clients, start_broker: StartBroker, queue: str
) -> None:
    broker = start_broker(max_destinations=3)
    wire, other = client(to=broker), client(to=broker)
    for number in range(2):
        fill(other, f"{queue}/{number}", "first")
    wire.send(frames.begin("t"), *(frames.send(f"{queue}/{number}", "x", transaction="t") for number in range(4)))
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_error("E-DEST-COUNT", receipt_id="c")
    for number in range(2):
        assert bodies(left_in(other, f"{queue}/{number}")) == ["first"]
    fill(other, f"{queue}/2", "room for a third")


@pytest.mark.parametrize(("version", "command"), VERSION_COMMAND)
def test_a_commit_whose_delivery_was_unsubscribed_has_no_effect(
    client: Clients, queue: str, version: str, command: str
) -> None:
    wire, other = client(version), client(version)
    fill(other, queue, "1", "2")
    message, _ = held(wire, queue, "1", "2")
    settle = ack if command == "ACK" else nack
    wire.send(
        frames.begin("t"),
        settle(wire, message, transaction="t"),
        frames.send(f"{queue}/out", "never", transaction="t"),
        frames.unsubscribe("held", receipt="u"),
    )
    wire.expect_receipt("u")
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_error("E-TX-LOST", receipt_id="c")
    assert left_in(other, f"{queue}/out") == []
    assert bodies(left_in(other, queue)) == ["1", "2"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_whose_delivery_timed_out_has_no_effect(
    client: Clients, shared_broker: StartBroker, queue: str, version: str
) -> None:
    broker = shared_broker(ack_timeout="1500ms", redelivery_delay="10ms")
    wire, other = client(version, to=broker), client(to=broker)
    fill(other, queue, "1")
    (message,) = held(wire, queue, "1", prefetch_count=1)
    wire.send(
        frames.begin("t"),
        ack(wire, message, transaction="t"),
        frames.send(f"{queue}/out", "never", transaction="t"),
    )
    other.subscribe(queue, "other", ack=INDIVIDUAL)
    again = other.expect_message("1", redelivered="true", delivery_count="2")
    other.send(ack(other, again, receipt="a"))
    other.expect_receipt("a")
    wire.send(frames.commit("t", receipt="c"))
    wire.expect_error("E-TX-LOST", receipt_id="c")
    assert left_in(other, f"{queue}/out") == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_byte_limit_covers_all_open_transactions(
    client: Clients, tight: BrokerProcess, queue: str, version: str
) -> None:
    wire, other = client(version, to=tight), client(to=tight)
    for number, end in enumerate((frames.commit, frames.abort, frames.commit)):
        wire.send(frames.begin("t"), frames.send(queue, "x" * 1500, transaction="t"), end("t", receipt=str(number)))
        wire.expect_receipt(str(number))
    wire.send(frames.begin("a"), frames.begin("b"), frames.send(queue, "y" * 1200, transaction="a", receipt="r"))
    wire.expect_receipt("r")
    wire.send(frames.send(queue, "z" * 1200, transaction="b", receipt="s"))
    wire.expect_error("E-TX-COUNT", receipt_id="s")
    assert bodies(left_in(other, queue)) == ["x" * 1500] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_one_transaction_too_many_aborts_the_others(
    client: Clients, tight: BrokerProcess, queue: str, version: str
) -> None:
    wire, other = client(version, to=tight), client(to=tight)
    for name in "abc":
        wire.send(frames.begin(name), frames.send(queue, name, transaction=name, receipt=name))
        wire.expect_receipt(name)
    wire.send(frames.begin("d", receipt="r"))
    wire.expect_error("E-TX-COUNT", receipt_id="r")
    assert left_in(other, queue) == []
