"""Transactions that fail, by an error of their frames or a COMMIT that is refused: docs/behaviour.md, section 3."""

from __future__ import annotations

import itertools

import pytest

from tests.support import frames
from tests.support.acks import VERSION_COMMAND, ack, nack
from tests.support.clients import Clients, StartBroker
from tests.support.frames import VERSIONS
from tests.support.process import BrokerProcess
from tests.support.queues import bodies, fill, left_in, take
from tests.support.transactions import INDIVIDUAL, commit, consume
from tests.support.waiting import eventually
from tests.support.wire import Wire


@pytest.fixture
def tight(shared_broker: StartBroker) -> BrokerProcess:
    """A broker with small limits for queues and transactions."""
    return shared_broker(max_queue_length=5, max_transactions=3, max_transaction_size=2000)


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
    (message,) = consume(wire, f"{queue}/in", "in")
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
    # A writer that is at work learns of the last refusal a little later than the client.
    eventually(lambda: fits(client(to=tight), f"{queue}/a", "12345"), "the room of the refused transactions is free")
    other.send(frames.subscribe(f"{queue}/a"))
    take(other, *"12345")


def fits(wire: Wire, name: str, bodies: str) -> bool:
    """Sends these bodies to a queue in one transaction. Returns whether it has room for all."""
    wire.send(frames.begin("f"), *(frames.send(name, body, transaction="f") for body in bodies))
    wire.send(frames.commit("f", receipt="f"))
    answer = wire.recv_frame()
    return answer.command == "RECEIPT" or answer["code"] != "E-QUEUE-FULL"


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
    message, _ = consume(wire, queue, "1", "2")
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
    (message,) = consume(wire, queue, "1", prefetch_count=1)
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
