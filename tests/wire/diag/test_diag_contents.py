"""The contents of the answers of DIAG: docs/behaviour.md, section 9."""

from __future__ import annotations

from tests.support import frames
from tests.support.acks import ack_and_wait
from tests.support.clients import Clients, OpenWebSocket, StartBroker
from tests.support.diagnostics import NETWORK_FIELDS, answer, ask, diag
from tests.support.queues import fill, take
from tests.support.waiting import eventually

STAGES = ["read", "parse", "route", "encode", "write", "turn"]


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
    assert set(before) == NETWORK_FIELDS and all(isinstance(value, int) for value in before.values())
    sent = [frames.send("/topic/a", f"{number}" * number) for number in range(1, 21)]
    publisher.send(*sent)
    received = 0
    for subscriber in subscribers:
        for number in range(1, 21):
            received += len(subscriber.expect_message(f"{number}" * number).body)
    after = answer(wire, "network")
    delta = {name: after[name] - before[name] for name in NETWORK_FIELDS}
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
    assert all(shard["unanswered"] <= 1 for shard in shards), "only this query may be unanswered"


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
