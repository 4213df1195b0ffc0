"""STOMP 1.2 "STOMP Frames", "Body" and "Repeated Header Entries".

See docs/specification.md, items 24 to 34 and 40 to 47.
"""

from __future__ import annotations

import itertools
import os

import pytest

from tests.support import frames
from tests.support.clients import Clients
from tests.support.frames import ESCAPING, VERSIONS
from tests.support.wire import Wire

ALL_OCTETS = bytes(range(256))
WITHOUT_BODY = ["SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "DISCONNECT"]


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_may_arrive_byte_by_byte(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send_bytewise(frames.subscribe(topic, receipt="s"))
    wire.expect_receipt("s")
    wire.send_bytewise(frames.send_counted(topic, "a\0b", ("x", "é")))
    wire.expect_message(b"a\0b", x="é")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "uncounted"])
def test_a_frame_may_be_split_at_every_point(subscriber: Wire, topic: str, version: str, counted: bool) -> None:
    build = frames.send_counted if counted else frames.send
    sent = b"\n" + build(topic, b"body\n\n", ("k", "v\\\\w")) + b"\n"
    for at in range(1, len(sent)):
        subscriber.send_pieces(sent[:at], sent[at:])
    for _ in range(1, len(sent)):
        subscriber.expect_message(b"body\n\n", k="v\\\\w" if version == "1.0" else "v\\w")
    subscriber.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_thousand_frames_in_one_segment_are_read(subscriber: Wire, topic: str) -> None:
    subscriber.send(*(frames.send(topic, f"{number}") for number in range(1000)))
    for number in range(1000):
        subscriber.expect_message(f"{number}")
    subscriber.barrier()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("step", [7, 61, 1009, 65537])
def test_a_stream_of_frames_may_arrive_in_pieces_of_odd_sizes(subscriber: Wire, topic: str, step: int) -> None:
    bodies = [os.urandom(size % 700 if step > 8 else size % 20) for size in range(0, 3000, 31)]
    stream = b"".join(frames.send_counted(topic, body, number=number) for number, body in enumerate(bodies))
    subscriber.send_pieces(*(stream[at : at + step] for at in range(0, len(stream), step)))
    for number, body in enumerate(bodies):
        subscriber.expect_message(body, number=str(number))


@pytest.mark.parametrize("version", VERSIONS)
def test_content_length_counts_octets_and_lets_nul_through(subscriber: Wire, topic: str) -> None:
    for body in (ALL_OCTETS, b"\0", b"\0\0\0", b"a\0", "é日\0".encode(), b"MESSAGE\n\n\0", b"\n\n"):
        subscriber.send(frames.send_counted(topic, body))
        assert subscriber.expect_message(body)["content-length"] == str(len(body))


@pytest.mark.parametrize("version", VERSIONS)
def test_without_content_length_the_body_ends_at_the_first_nul(subscriber: Wire, topic: str) -> None:
    body = ALL_OCTETS[1:]
    subscriber.send(frames.send(topic, body), frames.send(topic, "next"))
    subscriber.expect_message(body)
    subscriber.expect_message("next")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_body_needs_no_content_length(subscriber: Wire, topic: str) -> None:
    subscriber.send(frames.send(topic), frames.send_counted(topic, ""))
    subscriber.expect_message("")
    subscriber.expect_message("")
    subscriber.barrier()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("length", "body"), [(2, "abc"), (0, "a"), (5, "abc\0SEND\n"), (4, "abc\0x")])
def test_content_length_not_followed_by_nul_is_an_error(subscriber: Wire, topic: str, length: int, body: str) -> None:
    subscriber.send(frames.send(topic, body, content_length=length, receipt="r"))
    subscriber.expect_error("E-CONTENT-LENGTH", receipt_id="r")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", ["abc", "-1", "+3", "3.0", "0x3", "3,3", "3 3", "٣", "1e0", "-0"])
def test_a_content_length_that_is_not_a_number_is_an_error(
    client: Clients, topic: str, version: str, length: str
) -> None:
    wire = client(version)
    wire.send(frames.send(topic, "abc", content_length=length))
    wire.expect_error("E-CONTENT-LENGTH")


@pytest.mark.parametrize("length", [1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 10**40])
def test_a_huge_content_length_is_an_error_at_once(client: Clients, topic: str, length: int) -> None:
    wire = client()
    wire.send(frames.send(topic, "abc", content_length=length))
    wire.expect_error("E-CONTENT-LENGTH", "E-MESSAGE-SIZE")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_of_repeated_content_lengths_counts(subscriber: Wire, topic: str) -> None:
    subscriber.send(frames.send(topic, "a\0c", ("content-length", "3"), ("content-length", "1")))
    subscriber.expect_message(b"a\0c")
    subscriber.barrier()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_frame_may_have_a_content_length_of_0(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(
        frames.subscribe(topic, content_length=0, receipt="1"),
        frames.begin("t", content_length=0, receipt="2"),
        frames.abort("t", content_length=0, receipt="3"),
        frames.begin("t"),
        frames.commit("t", content_length=0, receipt="4"),
        frames.unsubscribe("0", content_length=0, receipt="5"),
        frames.disconnect(content_length=0, receipt="6"),
    )
    for receipt in "123456":
        wire.expect_receipt(receipt)
    wire.expect_closed()


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("command", WITHOUT_BODY)
@pytest.mark.parametrize("length", [None, 4], ids=["uncounted", "counted"])
def test_a_body_on_any_frame_but_send_is_an_error(
    client: Clients, topic: str, version: str, command: str, length: int | None
) -> None:
    wire = client(version)
    wire.send(frames.begin("open"))
    headers: list[frames.Header] = [("destination", topic), ("id", "7"), ("transaction", "open"), ("message-id", "1")]
    wire.send(frames.frame(command, *headers, body="body", content_length=length))
    wire.expect_error("E-BODY")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 2, 10_000])
def test_eols_after_a_frame_are_ignored(subscriber: Wire, topic: str, count: int) -> None:
    subscriber.send(b"\n" * count, frames.send(topic, "a"), b"\n" * count, frames.send(topic, "b"), b"\n" * count)
    subscriber.expect_message("a")
    subscriber.expect_message("b")
    subscriber.barrier()


def test_crlf_after_a_frame_is_ignored_in_1_2(client: Clients, topic: str) -> None:
    wire = client("1.2")
    wire.subscribe(topic)
    wire.send(b"\r\n\n\r\n", frames.send(topic, "a"), b"\r\n" * 100, frames.send(topic, "b"))
    wire.expect_message("a")
    wire.expect_message("b")


def test_crlf_ends_lines_in_1_2(client: Clients, topic: str) -> None:
    wire = client("1.2")
    wire.send(frames.frame("SUBSCRIBE", ("id", "0"), ("destination", topic), ("receipt", "s"), eol=b"\r\n"))
    wire.expect_receipt("s")
    wire.send(frames.frame("SEND", ("destination", topic), ("k", "v"), body="a\r\nb\r\n", eol=b"\r\n"))
    wire.expect_message("a\r\nb\r\n", k="v", destination=topic)


def test_lf_and_crlf_may_be_mixed_in_1_2(client: Clients, topic: str) -> None:
    wire = client("1.2")
    wire.subscribe(topic)
    head = f"SEND\r\ndestination:{topic}\nk:v\r\nl:w\n\r\nbody\0SEND\ndestination:{topic}\r\n\nbody\0"
    wire.send(head.encode())
    wire.expect_message("body", k="v", l="w")
    wire.expect_message("body")


def test_crlf_frames_may_be_split_at_every_point(client: Clients, topic: str) -> None:
    wire = client("1.2")
    wire.subscribe(topic)
    sent = b"\r\n" + frames.frame("SEND", ("destination", topic), ("k", "v"), body="x", eol=b"\r\n") + b"\r\n"
    for at in range(1, len(sent)):
        wire.send_pieces(sent[:at], sent[at:])
    for _ in range(1, len(sent)):
        wire.expect_message("x", k="v")
    wire.barrier()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_cr_is_data_before_1_2(subscriber: Wire, topic: str) -> None:
    subscriber.send(f"SEND\ndestination:{topic}\nk:v\r\nl:a\rb\n\nx\0".encode())
    subscriber.expect_message("x", k="v\r", l="a\rb")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_cr_does_not_end_a_command_before_1_2(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(f"SEND\r\ndestination:{topic}\n\nx\0".encode())
    wire.expect_error("E-COMMAND")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_line_of_cr_does_not_end_the_headers_before_1_2(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    wire.send(f"SEND\ndestination:{topic}\n\r\nx\n\n\0".encode())
    wire.expect_error("E-HEADER")


@pytest.mark.parametrize("line", ["k:a\rb", "k:\r\r", "a\rb:v"])
def test_a_stray_cr_in_a_header_is_an_error_in_1_2(client: Clients, topic: str, line: str) -> None:
    wire = client("1.2")
    wire.send(f"SEND\ndestination:{topic}\n{line}\r\n\nx\0".encode())
    wire.expect_error("E-HEADER")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("line", ["no colon", ":value", ":", " ", "x"])
def test_a_header_line_without_colon_or_name_is_an_error(client: Clients, topic: str, version: str, line: str) -> None:
    wire = client(version)
    wire.send(f"SEND\ndestination:{topic}\n{line}\n\nx\0".encode())
    wire.expect_error("E-HEADER")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_nul_in_a_header_is_data_or_an_error(client: Clients, topic: str, version: str) -> None:
    """The grammar allows a NUL in a header, most parsers do not; in either case the session stays well-defined."""
    wire = client(version)
    wire.send(frames.send(topic, "x", ("k", "a\0b"), receipt="r"))
    answer = wire.recv_frame()
    assert answer.command in ("RECEIPT", "ERROR")
    if answer.command == "ERROR":
        wire.expect_closed()
    else:
        wire.barrier()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "command",
    ["PUBLISH", "send", "Send", "SEND ", " SEND", "SENDS", "SEN", "MESSAGE", "RECEIPT", "ERROR", "CONNECTED", "S\tEND"],
)
def test_an_unknown_command_is_an_error(client: Clients, topic: str, version: str, command: str) -> None:
    wire = client(version)
    wire.send(frames.frame(command, ("destination", topic)))
    wire.expect_error("E-COMMAND")


@pytest.mark.parametrize("version", VERSIONS)
def test_header_names_are_case_sensitive(subscriber: Wire, topic: str) -> None:
    subscriber.send(
        frames.send(topic, "x", ("Destination", "/topic/other"), ("RECEIPT", "no"), ("Content-Length", "99"))
    )
    message = subscriber.expect_message("x", Destination="/topic/other", RECEIPT="no")
    assert ("Content-Length", "99") in message.headers
    subscriber.send(frames.frame("SEND", ("Destination", topic)))
    subscriber.expect_error("E-DEST-MISSING")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_of_repeated_headers_counts(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    again = [("id", "second"), ("destination", "/topic/other"), ("receipt", "t")]
    wire.send(frames.subscribe(topic, None, ("id", "first"), ("receipt", "s"), *again))
    wire.expect_receipt("s")
    wire.send(frames.send(topic, "x", ("receipt", "one"), ("receipt", "two"), ("destination", "/topic/other")))
    answers = [wire.recv_frame(), wire.recv_frame()]
    message = next(frame for frame in answers if frame.command == "MESSAGE")
    receipt = next(frame for frame in answers if frame.command == "RECEIPT")
    assert (message["subscription"], message["destination"]) == ("first", topic)
    assert receipt.headers == (("receipt-id", "one"),)
    wire.barrier()


@pytest.mark.parametrize("version", ESCAPING)
def test_nothing_is_trimmed_in_1_1_and_1_2(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    padded = f" {topic} "
    wire.subscribe(padded, " id ")
    wire.send(frames.send(topic, "elsewhere"), frames.send(padded, "x", (" k ", " v "), ("\tt", "\tw\t")))
    message = wire.expect_message("x", destination=padded, subscription=" id ")
    assert (" k ", " v ") in message.headers
    assert ("\tt", "\tw\t") in message.headers


def test_1_0_values_lose_leading_spaces_only(client: Clients, topic: str) -> None:
    wire = client("1.0")
    wire.send(f"SUBSCRIBE\ndestination:  {topic}\nid: 7\nreceipt: s\n\n\0".encode())
    wire.expect_receipt("s")
    wire.send(f"SEND\ndestination: {topic}\nk:  a b \ncontent-length: 3\n\nx\0y\0".encode())
    wire.expect_message(b"x\0y", k="a b ", subscription="7", destination=topic)


@pytest.mark.parametrize("version", ESCAPING)
def test_an_empty_value_is_a_value(subscriber: Wire, topic: str) -> None:
    subscriber.send(frames.send(topic, "x", ("empty", ""), ("k", "v")))
    subscriber.expect_message("x", empty="", k="v")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_value_may_contain_colons(subscriber: Wire, topic: str) -> None:
    subscriber.send(frames.send(topic, "x", ("url", "http://h:80/"), ("colons", ":::")))
    subscriber.expect_message("x", url="http://h:80/", colons=":::")


@pytest.mark.parametrize("version", VERSIONS)
def test_headers_are_utf_8(client: Clients, version: str, topic: str) -> None:
    wire = client(version)
    destination = f"{topic}/日本/é"
    wire.subscribe(destination, "ü")
    wire.send(frames.send(destination, "x", ("ключ", "значение"), ("emoji", "🐧")))
    message = wire.expect_message("x", destination=destination, subscription="ü", emoji="🐧")
    assert message["ключ"] == "значение"


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize("octets", [b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
def test_a_header_that_is_not_utf_8_is_an_error(client: Clients, topic: str, version: str, octets: bytes) -> None:
    wire = client(version)
    wire.send(frames.send(topic, "x", ("k", b"v" + octets)))
    wire.expect_error("E-UTF8")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_that_never_ends_is_dropped_with_its_connection(client: Clients, topic: str, version: str) -> None:
    """The sender ends the stream inside the frame, before its NUL."""
    bystander = client()
    bystander.subscribe(topic)
    for cut in (b"SEND\ndestination:" + topic.encode(), frames.send(topic, "x", receipt="r")[:-1]):
        wire = client(version)
        wire.send(cut)
        wire.half_close()
        assert all(frame.command == "ERROR" for frame in wire.frames_until_closed())
    bystander.barrier()


@pytest.mark.parametrize("size", [1 << 20, 16 << 20], ids=["1MiB", "16MiB"])
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "uncounted"])
def test_large_bodies_arrive_whole(client: Clients, topic: str, size: int, counted: bool) -> None:
    wire = client()
    publisher = client()
    wire.subscribe(topic)
    body = b"0123456789abcde\n" * (size // 16)
    publisher.send((frames.send_counted if counted else frames.send)(topic, body, k="v"))
    wire.expect_message(body, k="v")
    wire.barrier(publisher)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_large_body_may_be_split_anywhere(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    publisher = client(version)
    wire.subscribe(topic)
    body = os.urandom(1 << 20)
    sent = frames.send_counted(topic, body)
    head = len(sent) - len(body) - 1
    for cuts in [(1, head), (head, head + 1), (head - 1, 65536), (65535, 65537), (131072, len(sent) - 1)]:
        edges = [0, *cuts, len(sent)]
        publisher.send_pieces(*(sent[start:end] for start, end in itertools.pairwise(edges)))
        wire.expect_message(body)
    wire.barrier(publisher)
