"""DIAG, the broker's own diagnostics: docs/behaviour.md 9."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.diagnostics import HEADER_QUERIES, JSON_QUERIES, answer, diag, header_names
from tests.support.frames import VERSIONS
from tests.support.parser import Frame
from tests.support.queues import fill, take, until_receipt
from tests.support.waiting import eventually
from tests.support.wire import Wire

NETWORK = {
    "bytes_in",
    "bytes_out",
    "frames_in",
    "messages_in",
    "deliveries",
    "reads",
    "writes",
    "dropped_websocket_frames",
    "fixed_underruns",
    "cached_destinations",
    "connections",
    "accepted",
    "refused",
    "closed",
    "errors",
    "dropped",
}
STAGES = ["read", "parse", "route", "encode", "write", "turn"]


# -- the DIAG frame ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_queries_of_c_stompica_are_answered_in_one_header(
    client: Clients, start_broker: StartBroker, version: str
) -> None:
    broker = start_broker()
    wire = client(version, to=broker)
    session = '{"clients":1,"websockets":0,"stomp_connected":1,"subscriptions":0}'
    for query, value in (
        ("session", session),
        ("session-size", "1"),
        ("session-encoded-size", "0"),
        ("session-connected-size", "1"),
        ("pubsub-size", "0"),
        ("stale", '{"in":0,"out":0,"stale":0}'),
    ):
        wire.send(diag(query))
        frame = wire.expect("DIAG")
        assert frame.headers == ((query, value),) and frame.body == b""
        colon = b":" if version == "1.0" else rb"\c"
        assert frame.raw == ((query.encode(), value.encode().replace(b":", colon)),)
    assert set(answer(wire, "ws_buffer")) == {"allocated", "hits", "misses"}
    wire.subscribe("/dup")
    wire.subscribe("/q/*", "1")
    assert answer(wire, "subs") == "/dup,/q/*"
    assert answer(wire, "pubsub-size") == 2
    wire.barrier()


@pytest.mark.parametrize("query", HEADER_QUERIES + JSON_QUERIES)
def test_every_query_is_answered_before_connect_and_after(client: Clients, query: str) -> None:
    wire = client.raw()
    wire.version = "1.0"
    answer(wire, query)
    wire.connect("1.2")
    answer(wire, query)
    wire.barrier()


def test_a_connection_may_consist_of_one_query(client: Clients) -> None:
    """As `printf 'DIAG\\n\\nsession-size\\0' | nc` sends it."""
    wire = client.raw()
    wire.send(diag("session-size\n"))
    wire.half_close()
    assert int(wire.expect("DIAG")["session-size"]) >= 1
    wire.expect_closed()


def test_everything_but_diag_needs_connect(client: Clients) -> None:
    wire = client.raw()
    wire.send(diag("store"), frames.send("DIAG", "store"))
    wire.version = "1.2"
    assert wire.expect("DIAG").text == '{"kind":"memory"}'
    wire.expect_error("E-NOT-CONNECTED")


def test_a_query_does_not_prolong_the_login_timeout(client: Clients, shared_broker: StartBroker) -> None:
    wire = client.raw(shared_broker(login_timeout="1500ms"))
    answer(wire, "store")
    wire.expect_error("E-LOGIN-TIMEOUT")


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_keep_the_order_of_the_frames(client: Clients, topic: str, version: str) -> None:
    wire = client(version)
    sent = [
        frames.subscribe(topic, "s", receipt="first"),
        *(diag(query, receipt=query) for query in JSON_QUERIES),
        frames.send(topic, "x", receipt="last"),
    ]
    wire.send(*sent)
    wire.expect_receipt("first")
    for query in JSON_QUERIES:
        wire.expect("DIAG", query=query)
        wire.expect_receipt(query)
    assert [message.text for message in until_receipt(wire, "last") or [wire.expect_message()]] == ["x"]
    wire.disconnect()


def test_a_thousand_queries_in_one_segment_are_answered_in_order(client: Clients) -> None:
    wire, other = client(), client()
    wire.send(*(diag("session" if number % 2 else "shards") for number in range(1000)), frames.disconnect(receipt="r"))
    other.barrier()
    for number in range(1000):
        wire.expect("DIAG", query=None if number % 2 else "shards")
    wire.expect_receipt("r")


@pytest.mark.parametrize("query", ["", "sessions", "SESSION", "session,stale", "a\nb", "\xff", "x" * 1000])
def test_an_unknown_query_is_an_error(client: Clients, query: str) -> None:
    for wire in (client.raw(), client()):
        wire.send(diag(query, receipt="r"))
        error = wire.expect_error("E-DIAG-QUERY", receipt_id="r")
        first = error.text.splitlines()[0]
        assert all(name in first for name in HEADER_QUERIES + JSON_QUERIES) and len(first) < 400


# -- SEND and SUBSCRIBE --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_send_is_answered_to_every_subscription_of_its_destination(
    client: Clients, start_broker: StartBroker, version: str
) -> None:
    broker = start_broker()
    requester, *others = wires = [client(version, to=broker) for _ in range(4)]
    for wire in wires:
        wire.subscribe("DIAG", "d")
    others[0].subscribe("DIAG/other", "not asked")
    requester.send(frames.send("DIAG", "session", ("ts", "17"), ("k", "v"), receipt="r"))
    messages = [wire.expect_message("session", destination="DIAG", subscription="d") for wire in others]
    messages += until_receipt(requester, "r") or [requester.expect_message("session")]
    numbers = {"clients": "4", "websockets": "0", "stomp_connected": "4", "subscriptions": "5"}
    for message in messages:
        assert {name: message[name] for name in numbers} == numbers
        assert (message["ts"], message["k"]) == ("17", "v")
        assert set(header_names(message)) == {
            "subscription",
            "message-id",
            "destination",
            "content-length",
            "ts",
            "k",
            *numbers,
        }
    for wire in wires:
        wire.barrier()


def ask(wire: Wire, query: str, destination: str = "DIAG") -> Frame:
    """Sends a query to a destination that `wire` has subscribed to; returns the answer."""
    wire.send(frames.send(destination, query))
    return wire.expect_message(destination=destination)


def test_statistics_of_c_stompica_are_headers(client: Clients, start_broker: StartBroker) -> None:
    wire = client(to=start_broker())
    wire.subscribe("DIAG", "d")
    server = {"subscription", "message-id", "destination", "content-length"}
    for query, expected in (
        ("ws_buffer", {"allocated", "hits", "misses"}),
        ("stale", {"input-queue-size", "output-queue-size", "stale-queue-size"}),
    ):
        message = ask(wire, query)
        assert set(header_names(message)) - server == expected and message.text == query
        assert all(message[name].isdigit() for name in expected)
    for query, value in (
        ("session-size", "1"),
        ("session-encoded-size", "0"),
        ("session-connected-size", "1"),
        ("pubsub-size", "1"),
        ("subs", "DIAG"),
    ):
        message = ask(wire, query)
        assert message[query] == value and message.text == query
        assert set(header_names(message)) - server == {query}


@pytest.mark.parametrize("query", JSON_QUERIES)
def test_answers_of_new_queries_are_bodies(client: Clients, query: str) -> None:
    wire = client()
    destination = f"DIAG.{query}.mine"
    wire.subscribe(destination, "d")
    wire.send(frames.send(destination, query, ("content-type", "text/plain"), ("ts", "1")))
    message = wire.expect_message(destination=destination, query=query, content_type="application/json", ts="1")
    json.loads(message.text)
    assert message["content-length"] == str(len(message.body))


def test_a_query_is_not_published(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(ttl="10s")
    wire, listener = client(to=broker), client(to=broker)
    listener.subscribe("*", "topics")
    before = answer(wire, "network")
    wire.send(frames.send("DIAG", "session", receipt="nobody"))
    wire.expect_receipt("nobody")
    wire.subscribe("DIAG", "late")
    wire.barrier()
    after = answer(wire, "network")
    assert after["messages_in"] - before["messages_in"] == 1  # of the barrier
    listener.expect_message()  # of the barrier
    assert answer(wire, "stale")["stale"] == 0


def test_only_patterns_that_begin_with_diag_match_diagnostics(client: Clients, topic: str) -> None:
    wire = client()
    place = f"DIAG{topic}"
    wire.subscribe(f"{place}/*", "all")
    ask(wire, "session", f"{place}/a")
    ask(wire, "stale", f"{place}/b")
    wire.send(frames.send(f"{place}/*", "session", receipt="r"))
    wire.expect_error("E-DEST-WILDCARD", receipt_id="r")


def test_diagnostics_work_in_compat_mode(client: Clients, shared_broker: StartBroker) -> None:
    wire = client(to=shared_broker(compat="stompica"))
    wire.subscribe("DIAG", "d")
    assert ask(wire, "session-size")["session-size"].isdigit()
    answer(wire, "session")


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        ("E-DIAG-QUERY", frames.send("DIAG", "nonsense", receipt="r")),
        ("E-DIAG-QUERY", frames.send("DIAG", receipt="r")),
        ("E-VALUE", frames.send("DIAG", "session", receipt="r", transaction="t")),
        ("E-VALUE", frames.send("DIAG", "session", receipt="r", retain="set")),
        ("E-DIAG-QUERY", frames.subscribe("DIAG", receipt="r", interval=1000, query="nonsense")),
        ("E-DIAG-QUERY", frames.subscribe("DIAG/nonsense", receipt="r", interval=1000)),
        ("E-DIAG-QUERY", frames.subscribe("DIAG/*", receipt="r", interval=1000)),
        *(
            ("E-VALUE", frames.subscribe("DIAG", receipt="r", interval=interval))
            for interval in ("99", "0", "-100", "1s", "100.5", "", "1e3", "99999999999999999999")
        ),
    ],
)
def test_a_query_that_is_not_allowed_is_an_error(client: Clients, code: str, sent: bytes) -> None:
    wire = client()
    wire.send(frames.begin("t"), sent)
    wire.expect_error(code, receipt_id="r")


# -- intervals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_come_at_an_interval_until_the_subscription_ends(client: Clients, version: str) -> None:
    wire, other = client(version), client(version)
    other.subscribe("DIAG/session", "plain")
    other.subscribe("DIAG", "clock", interval=100)
    wire.subscribe("DIAG", "i", interval=100, query="session-size")
    for _ in range(3):
        message = wire.expect_message("session-size", destination="DIAG", subscription="i")
        assert int(message["session-size"]) >= 2
    wire.send(frames.unsubscribe("i", receipt="r"))
    until_receipt(wire, "r")
    for _ in range(3):
        other.expect_message("session", destination="DIAG", subscription="clock")
    wire.barrier()


@pytest.mark.parametrize(
    ("destination", "headers", "query", "sender"),
    [
        ("DIAG", {}, "session", "DIAG"),
        ("DIAGNOSTICS", {}, "session", "DIAGNOSTICS"),
        ("DIAG/network", {}, "network", "DIAG/network"),
        ("DIAG.stale", {}, "stale", "DIAG.stale"),
        ("DIAG/network", {"query": "queues"}, "queues", "DIAG/network"),
        ("DIAG/mine", {"query": "shards"}, "shards", "DIAG/mine"),
        ("DIAG*", {}, "session", "DIAG/session"),
        ("DIAG/*", {"query": "memory"}, "memory", "DIAG/memory"),
    ],
)
def test_the_query_of_an_interval_comes_from_header_or_destination(
    client: Clients, destination: str, headers: dict[str, str], query: str, sender: str
) -> None:
    wire = client()
    wire.subscribe(destination, "i", interval=100, **headers)
    for _ in range(2):
        message = wire.expect_message(destination=sender, subscription="i")
        if query in JSON_QUERIES:
            assert message["query"] == query
            json.loads(message.text)
        else:
            assert message.text == query and message.header("query") is None


def test_each_subscription_has_an_interval_of_its_own(client: Clients) -> None:
    wire, other = client(), client()
    other.subscribe("DIAG/stale", "others")
    wire.subscribe("DIAG/stale", "fast", interval=100)
    wire.send(frames.subscribe("DIAG/stale", "slow", interval=3_600_000, receipt="r"))
    seen = [message["subscription"] for message in until_receipt(wire, "r")]
    while seen.count("fast") < 5:
        seen.append(wire.expect_message("stale")["subscription"])
    assert seen.count("slow") == 1
    other.barrier()


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_answers_at_an_interval_may_be_acknowledged(client: Clients, mode: str) -> None:
    wire = client()
    wire.subscribe("DIAG", "i", ack=mode, interval=100, query="store", prefetch_count=1)
    for _ in range(3):
        message = wire.expect_message('{"kind":"memory"}')
        waiting = ack_and_wait(wire, message)
        assert waiting == [] or len(waiting) == 1
        for again in waiting:
            ack_and_wait(wire, again)


def test_no_query_is_refused_while_thousands_of_intervals_are_due(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(publish_timeout="1s")
    watcher, other = client(to=broker), client(to=broker)
    count = 9000
    watcher.send(*(frames.subscribe("DIAG/session", str(at), interval=100) for at in range(count)))
    told = Counter[str]()
    while len(told) < count:
        answer(other, "session")
        answer(other, "memory")
        other.send(frames.send("DIAG/other", "queues", receipt="asked"))
        other.expect_receipt("asked")
        for _ in range(500):
            told[watcher.expect_message("session")["subscription"]] += 1
    other.barrier()


def test_an_interval_ends_with_its_connection(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker()
    wire, watcher = client(to=broker), client(to=broker)
    for _ in range(20):
        leaving = client(to=broker)
        leaving.subscribe("DIAG", "i", interval=100)
        leaving.reset()
        wire.barrier()
    watcher.subscribe("DIAG", "clock", interval=100)
    for _ in range(3):
        message = watcher.expect_message("session")
    assert int(message["subscriptions"]) == 1
    wire.barrier()


# -- contents of the answers ---------------------------------------------------------------------------------------


def test_session_counts_connections_and_subscriptions(
    client: Clients, ws: OpenWebSocket, start_broker: StartBroker
) -> None:
    broker = start_broker()
    wire, topics, queues = (client(to=broker) for _ in range(3))
    bare, socket_one = client.raw(broker), ws(to=broker)
    answer(bare, "session")
    topics.subscribe("/topic/a")
    topics.subscribe("/topic/a", "again")
    topics.subscribe("/topic/*", "pattern")
    queues.subscribe("/queue/a")
    queues.subscribe("/queue/*", "pattern")
    queues.subscribe("#work", "worker")
    queues.subscribe("/temp-queue/mine", "temporary")
    queues.subscribe("/topic/acked", "acked", ack="client")
    socket_one.subscribe("/topic/durable", "d", durable="true")
    expected = {"clients": 5, "websockets": 1, "stomp_connected": 4, "subscriptions": 9}
    assert answer(wire, "session") == expected
    for query, field in (
        ("session-size", "clients"),
        ("session-encoded-size", "websockets"),
        ("session-connected-size", "stomp_connected"),
    ):
        assert answer(wire, query) == expected[field]
    subscribed = ["#work", "/queue/*", "/queue/a", "/temp-queue/mine"]
    subscribed += ["/topic/*", "/topic/a", "/topic/acked", "/topic/durable"]
    assert answer(wire, "subs").split(",") == subscribed
    assert answer(wire, "pubsub-size") == len(subscribed)
    for leaving in (topics, queues, socket_one):
        leaving.send(frames.disconnect(receipt="bye"))
        leaving.expect_receipt("bye")
    assert answer(wire, "session") == {"clients": 2, "websockets": 0, "stomp_connected": 1, "subscriptions": 0}
    assert answer(wire, "subs") == ""


def test_network_counts_are_exact(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker()
    wire, publisher, *subscribers = (client(to=broker) for _ in range(6))
    for subscriber in subscribers:
        subscriber.subscribe("/topic/a", "s")
    before = answer(wire, "network")
    assert set(before) == NETWORK and all(isinstance(value, int) for value in before.values())
    sent = [frames.send("/topic/a", f"{number}" * number) for number in range(1, 21)]
    publisher.send(*sent)
    received = 0
    for subscriber in subscribers:
        for number in range(1, 21):
            received += len(subscriber.expect_message(f"{number}" * number).body)
    after = answer(wire, "network")
    delta = {name: after[name] - before[name] for name in NETWORK}
    asked = len(diag("network"))
    assert delta["bytes_in"] == len(b"".join(sent)) + asked
    assert (delta["frames_in"], delta["messages_in"], delta["deliveries"]) == (21, 20, 80)
    assert delta["bytes_out"] > received and delta["reads"] >= 2 and delta["writes"] >= 4
    assert (after["connections"], after["accepted"], after["cached_destinations"]) == (
        6,
        6,
        before["cached_destinations"],
    )
    for name in ("refused", "closed", "errors", "dropped", "dropped_websocket_frames", "fixed_underruns"):
        assert after[name] == 0, name
    publisher.send(frames.send("/topic/*"))
    publisher.expect_error("E-DEST-WILDCARD")
    publisher.close()
    subscribers[0].disconnect()
    shards = answer(wire, "shards")
    assert answer(wire, "network")["errors"] == 1
    assert [shard["shard"] for shard in shards] == list(range(len(shards)))
    assert sum(shard["deliveries"] for shard in shards) == 80
    assert sum(shard["frames_in"] for shard in shards) == after["frames_in"] + 3
    assert sum(shard["subscriptions"] for shard in shards) == 3
    assert all(shard["turns"] > 0 and shard["cpu_us"] > 0 and shard["max_turn_us"] > 0 for shard in shards)
    assert sum(shard["max_turn_deliveries"] for shard in shards) >= 3
    assert sum(shard["max_turn_bytes"] for shard in shards) > 0
    assert all(shard["unanswered"] <= 1 for shard in shards), "no more than this very question waits"


def test_queues_and_ack_report_waiting_and_unacknowledged_messages(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker()
    wire, consumer, owner, publisher = (client(to=broker) for _ in range(4))
    consumer.subscribe("/queue/held", "h", ack="client-individual", prefetch_count=2)
    consumer.subscribe("/queue/auto", "a")
    owner.subscribe("/temp-queue/mine", "t")
    owner.subscribe("/topic/kept", "d", durable="true", ack="client")
    consumer.subscribe("#work", "w", ack="client")
    fill(publisher, "/queue/held", *"12345")
    fill(publisher, "/queue/waiting", "xx", "yy")
    publisher.send_and_wait("/topic/kept", "k")
    publisher.send_and_wait("#work", "w")
    first, _, _ = take(consumer, "1", "2", "w")
    assert [message.text for message in ack_and_wait(consumer, first) or [consumer.expect_message()]] == ["3"]
    owner.expect_message("k")
    rows = {row["name"]: row for row in answer(wire, "queues")}
    assert list(rows) == ["#work", "/queue/auto", "/queue/held", "/queue/waiting", "/temp-queue/mine", "d"]
    numbers = ("kind", "size", "in_flight", "consumers", "enqueued", "dequeued")
    assert {name: tuple(row[field] for field in numbers) for name, row in rows.items()} == {
        "#work": ("worker", 1, 1, 1, 1, 0),
        "/queue/auto": ("work", 0, 0, 1, 0, 0),
        "/queue/held": ("work", 4, 2, 1, 5, 1),
        "/queue/waiting": ("work", 2, 0, 0, 2, 0),
        "/temp-queue/mine": ("temporary", 0, 0, 1, 0, 0),
        "d": ("durable", 1, 1, 1, 1, 0),
    }
    assert rows["/queue/waiting"]["waiting_bytes"] >= 4 and rows["/queue/auto"]["waiting_bytes"] == 0
    unacked = answer(wire, "ack")
    assert [(row["subscription"], row["destination"], row["mode"], row["in_flight"]) for row in unacked] == [
        ("h", "/queue/held", "client-individual", 2),
        ("w", "#work", "client", 1),
        ("d", "/topic/kept", "client", 1),
    ]
    assert unacked[0]["connection"] == unacked[1]["connection"] != unacked[2]["connection"]
    assert all(row["oldest_ms"] >= 0 for row in unacked)
    memory = answer(wire, "memory")
    assert memory["queue_bytes"] >= sum(row["waiting_bytes"] for row in rows.values()) > 0
    assert 0 < memory["held_bytes"] < memory["limit_bytes"] and memory["short"] is False


def test_stale_counts_messages_that_wait(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker(ttl="60s")
    wire, other = client(to=broker), client(to=broker)
    for number in range(5):
        other.send_and_wait(f"/topic/{number}", "held")
    other.send_and_wait("#work", "held")
    # A RECEIPT does not wait for the topic's home, which may be on another thread.
    eventually(lambda: answer(wire, "stale") == {"in": 0, "out": 0, "stale": 6}, "all six are held")
    wire.subscribe("DIAG", "d")
    message = ask(wire, "stale")
    assert (message["input-queue-size"], message["stale-queue-size"]) == ("0", "6")


def test_slow_lists_consumers_that_do_not_read(client: Clients, shared_broker: StartBroker, topic: str) -> None:
    broker = shared_broker(slow_consumer="drop-newest", outbox_limit="64KiB")
    wire, publisher = client(to=broker), client(to=broker)
    assert answer(wire, "slow") == []
    slow = client.raw(broker, receive_buffer=4096)
    slow.connect("1.2")
    slow.subscribe(topic, "s")
    for _ in range(200):
        publisher.send(*(frames.send(topic, b"x" * 60_000) for _ in range(10)))
        publisher.send_and_wait("/topic/else")
        rows = answer(wire, "slow")
        if rows:
            break
    (row,) = rows
    assert row["peer"] == f"127.0.0.1:{slow.local_port}" and row["dropped"] > 0
    assert row["outbox_bytes"] >= 64 << 10 and row["full_ms"] >= 0
    waiting = answer(wire, "stale")["out"]
    assert waiting >= 1 and answer(wire, "memory")["outbox_bytes"] >= row["outbox_bytes"]
    assert answer(wire, "network")["dropped"] >= row["dropped"]
    slow.close()


def test_benchmark_reports_times_after_its_first_query(client: Clients, start_broker: StartBroker) -> None:
    broker = start_broker()
    wire, publisher = client(to=broker), client(to=broker)
    wire.subscribe("/topic/a", "s")
    publisher.send_and_wait("/topic/a", "before")
    wire.expect_message("before")
    first = answer(wire, "benchmark")
    assert 0 < first["enabled_ms_left"] <= 60_000 and list(first["stages"]) == STAGES
    assert all(times == {"count": 0, "total_ns": 0, "buckets": []} for times in first["stages"].values())
    for number in range(10):
        publisher.send_and_wait("/topic/a", f"{number}")
        wire.expect_message(f"{number}")
    stages = answer(wire, "benchmark")["stages"]
    for name, times in stages.items():
        assert times["count"] == sum(count for _, _, count in times["buckets"]), name
        low, high = (sum(row[bound] * row[2] for row in times["buckets"]) for bound in (0, 1))
        assert low <= times["total_ns"] < high, name
        for (low, high, _), (following, _, _) in zip(times["buckets"], times["buckets"][1:], strict=False):
            assert low < high <= following, name
    assert stages["route"]["count"] == 10 and stages["encode"]["count"] >= 10
    for name in ("read", "parse", "write", "turn"):
        assert stages[name]["count"] >= 10, name


# -- WebSocket -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_diagnostics_work_over_websocket(ws: OpenWebSocket, start_broker: StartBroker, version: str) -> None:
    broker = start_broker()
    wire = ws(version, to=broker)
    assert answer(wire, "session") == {"clients": 1, "websockets": 1, "stomp_connected": 1, "subscriptions": 0}
    assert answer(wire, "store") == {"kind": "memory"}
    wire.subscribe("DIAG", "d")
    assert ask(wire, "session-encoded-size")["session-encoded-size"] == "1"
    wire.subscribe("DIAG/network", "i", interval=100)
    for _ in range(2):
        assert set(json.loads(wire.expect_message(subscription="i").text)) == NETWORK
    wire.send(frames.unsubscribe("i", receipt="r"))
    until_receipt(wire, "r")
    wire.barrier()
