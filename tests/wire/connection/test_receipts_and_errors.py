"""STOMP 1.2 "RECEIPT", "ERROR", "DISCONNECT" and "Connection Lingering".

See docs/specification.md, items 8, 14 and 48 to 54.
"""

from __future__ import annotations

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.queues import numbered
from tests.support.wire import Wire


def expect_delivery(publisher: Wire, subscriber: Wire, topic: str) -> None:
    """One more message is delivered, and nothing else came before or after it."""
    publisher.send(frames.send(topic, "last"))
    subscriber.expect_message("last")
    subscriber.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_frame_but_connect_may_ask_for_a_receipt(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    for receipt, sent in [
        ("subscribe", frames.subscribe(topic, receipt="subscribe")),
        ("unsubscribe", frames.unsubscribe("0", receipt="unsubscribe")),
        ("send", frames.send(topic, "x", receipt="send")),
        ("begin", frames.begin("t", receipt="begin")),
        ("in transaction", frames.send(topic, "x", transaction="t", receipt="in transaction")),
        ("commit", frames.commit("t", receipt="commit")),
        ("begin again", frames.begin("t", receipt="begin again")),
        ("abort", frames.abort("t", receipt="abort")),
        ("disconnect", frames.disconnect(receipt="disconnect")),
    ]:
        wire.send(sent)
        wire.expect_receipt(receipt)
    wire.expect_closed()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("receipt", ["1", "0", "message-1", "é日", "with space", "x" * 5000])
def test_receipt_id_is_the_requested_one(client: Clients, version: str, receipt: str) -> None:
    wire = client(version)
    wire.send(frames.begin("t", receipt=receipt))
    wire.expect_receipt(receipt)
    wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_receipt_has_no_header_but_its_id(client: Clients, version: str) -> None:
    wire = client(version)
    wire.send(frames.begin("t", receipt="r"))
    answer = wire.expect("RECEIPT", body="")
    assert answer.raw == ((b"receipt-id", b"r"),)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_receipt_is_sent_unless_requested(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(frames.begin("t"), frames.send(topic, "x", transaction="t"), frames.commit("t"))
    wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_receipts_come_in_the_order_of_the_frames(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    sent = []
    for number in range(0, 300, 3):
        sent += [
            frames.subscribe(f"{topic}/{number}", str(number), receipt=f"{number}"),
            frames.send(f"{topic}/nobody", "x", receipt=f"{number + 1}"),
            frames.unsubscribe(str(number), receipt=f"{number + 2}"),
        ]
    wire.send(*sent)
    for number in range(300):
        wire.expect_receipt(f"{number}")
    wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_message_arrives_after_the_receipt_of_subscribe(client: Clients, topic: str, version: str) -> None:
    publishers = [client(version) for _ in range(8)]
    for number, publisher in enumerate(publishers):
        wire = client(version)
        wire.subscribe(f"{topic}/{number}")
        publisher.send(frames.send(f"{topic}/{number}", "x"))
        wire.expect_message("x")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_receipt_of_disconnect_is_the_last_frame(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(*(frames.send(topic, "x", receipt=str(number)) for number in range(50)), frames.disconnect(receipt="bye"))
    for number in range(50):
        wire.expect_receipt(str(number))
    wire.expect_receipt("bye")
    wire.expect_closed()


@pytest.mark.parametrize("version", VERSIONS)
def test_disconnect_without_receipt_closes_the_connection(client: Clients, version: str) -> None:
    wire = client(version)
    wire.send(frames.disconnect())
    wire.expect_closed()


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_behind_disconnect_are_ignored(client: Clients, topic: str, version: str) -> None:
    bystander = client()
    bystander.subscribe(topic)
    wire = client(version)
    wire.send(frames.disconnect(receipt="bye"), frames.send(topic, "too late", receipt="late"), b"garbage\n\n\0")
    wire.expect_receipt("bye")
    wire.expect_closed()
    bystander.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_sent_before_disconnect_arrive(subscriber: Wire, publisher: Wire, topic: str) -> None:
    publisher.send(*(frames.send(topic, str(number)) for number in range(100)), frames.disconnect())
    publisher.expect_closed()
    for number in range(100):
        subscriber.expect_message(str(number))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_has_code_message_receipt_id_and_an_explanation(client: Clients, version: str, topic: str) -> None:
    wire = client(version)
    wire.send(frames.frame("SEND", ("x-mine", topic), ("receipt", "r-17"), body="the body"))
    error = wire.expect_error("E-DEST-MISSING", receipt_id="r-17", message="destination missing")
    assert "SEND" in error.text
    assert f"x-mine:{topic}" in error.text
    assert "receipt:r-17" in error.text
    assert error["content-length"] == str(len(error.body))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_has_no_receipt_id_unless_a_receipt_was_requested(client: Clients, version: str) -> None:
    wire = client(version)
    wire.send(frames.frame("SEND"))
    wire.expect_error("E-DEST-MISSING", receipt_id=None, subscription=None)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_names_the_subscription_of_the_failing_frame(client: Clients, version: str) -> None:
    wire = client(version)
    wire.send(frames.unsubscribe("sub-9", receipt="r"))
    wire.expect_error("E-SUB-UNKNOWN", receipt_id="r", subscription="sub-9")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_failing_frame_gets_no_receipt_but_earlier_ones_do(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(
        frames.send(topic, "x", receipt="1"),
        frames.begin("t", receipt="2"),
        frames.frame("SEND", ("receipt", "3")),
        frames.send(topic, "x", receipt="4"),
    )
    wire.expect_receipt("1")
    wire.expect_receipt("2")
    wire.expect_error("E-DEST-MISSING", receipt_id="3")


@pytest.mark.parametrize("version", VERSIONS)
def test_receipts_that_wait_for_other_shards_come_before_an_error(client: Clients, topic: str, version: str) -> None:
    """The RECEIPT of SUBSCRIBE waits until every shard knows the subscription, and RECEIPTs keep their order."""
    bystander = client()
    bystander.subscribe(topic)
    wire = client(version)
    wire.send(
        frames.subscribe(f"{topic}/own", "0", receipt="1"),
        frames.send(topic, "took effect", receipt="2"),
        frames.frame("SEND", ("receipt", "3")),
    )
    wire.expect_receipt("1")
    wire.expect_receipt("2")
    wire.expect_error("E-DEST-MISSING", receipt_id="3")
    bystander.expect_message("took effect")


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_behind_the_failing_one_are_ignored(client: Clients, topic: str, version: str) -> None:
    bystander = client()
    bystander.subscribe(topic)
    wire = client(version)
    wire.send(frames.send(topic, "before"), frames.frame("NONSENSE"), frames.send(topic, "behind"))
    wire.expect_error("E-COMMAND")
    wire.discard()
    bystander.expect_message("before")
    bystander.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_arrives_although_input_is_unread_behind_it(client: Clients, topic: str, version: str) -> None:
    """Connection lingering: closing a socket with unread input would reset it and lose the ERROR."""
    for size in (1_000, 100_000, 2_000_000):
        wire = client(version)
        wire.send(frames.frame("NONSENSE"), frames.send(topic, b"x" * size), frames.send(topic, "x"))
        wire.expect_error("E-COMMAND")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_affects_no_other_connection(
    client: Clients, subscriber: Wire, publisher: Wire, topic: str, version: str
) -> None:
    for offender in (client(version) for _ in range(20)):
        offender.send(frames.subscribe(topic), frames.frame("NONSENSE"))
        offender.expect_error("E-COMMAND")
    expect_delivery(publisher, subscriber, topic)


@pytest.mark.parametrize("version", ESCAPING)
def test_the_frame_echoed_in_an_error_is_cut_to_a_reasonable_size(client: Clients, version: str) -> None:
    wire = client(version)
    wire.send(frames.frame("SEND", *((f"k{number}", "v" * 9000) for number in range(90))))
    error = wire.expect_error("E-DEST-MISSING")
    assert len(error.body) <= 1 << 20


@pytest.mark.parametrize("version", VERSIONS)
def test_receipts_that_are_due_arrive_after_half_close(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(*(frames.send(topic, "x", receipt=str(number)) for number in range(200)))
    wire.half_close()
    for number in range(200):
        wire.expect_receipt(str(number))
    wire.expect_closed()


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_the_client_itself_arrive_after_half_close(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(frames.subscribe(topic), *(frames.send(topic, str(number)) for number in range(50)))
    wire.half_close()
    left = wire.frames_until_closed()
    assert [frame.text for frame in left] == numbered(50)


@pytest.mark.parametrize("version", VERSIONS)
def test_half_close_right_behind_disconnect_loses_no_receipt(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(frames.send(topic, "x", receipt="1"), frames.disconnect(receipt="2"))
    wire.half_close()
    wire.expect_receipt("1")
    wire.expect_receipt("2")
    wire.expect_closed()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_disappears_does_not_disturb_others(
    client: Clients, subscriber: Wire, publisher: Wire, topic: str, version: str
) -> None:
    for _ in range(20):
        gone = client(version)
        gone.subscribe(topic)
        publisher.send(frames.send(topic, "x"))
        gone.reset()
        subscriber.expect_message("x")
    expect_delivery(publisher, subscriber, topic)
