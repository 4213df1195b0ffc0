"""Adapters of other brokers, and the byte-counting generator."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.peers import bytecount
from bench.peers.latency import BATCHES_MAX, WindowLatency

from stompica.bench import BenchError, loadgen, procfs
from stompica.bench.peers import PEERS, Missing
from stompica.bench.target import Running
from stompica.bench.workload import Point
from stompica.recording import histogram

QUICK = {"connections": 3, "messages": 500, "window": 100, "min_cpu_s": 0.0, "body": 50}


def installed(name: str) -> Any:
    peer = PEERS[name]
    try:
        peer.find()
    except Missing as missing:
        pytest.skip(f"{name}: {missing}")
    return peer


def repetition(name: str, tmp_path: Path, **fields: Any) -> dict[str, Any]:
    """Makes a tiny repetition against a peer that is started for it. The peer must have ended afterwards."""
    peer = installed(name)
    point = Point("tiny", fields.pop("transport", "tcp"), None, {"name": "tiny", **QUICK, **fields})
    assert peer.refuses(point) == ""
    program = Path("none") if peer.kinds == ("window",) else _program()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with peer.start(scratch) as running:
        assert running.version == peer.find() != ""
        order = loadgen.Order(point, running, 100, None)
        run = loadgen.run(program, order, tmp_path, lambda pid: None)
    assert not procfs.exists(running.pid)
    assert run["fault"] is None
    return run


def _program() -> Path:
    try:
        return loadgen.find()
    except BenchError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["redis", "nats", "mosquitto"])
def test_fan_out_is_counted_by_bytes(name: str, tmp_path: Path) -> None:
    run = repetition(name, tmp_path)
    assert (run["messages"], run["deliveries"], run["rounds"]) == (500, 1500, 1)
    assert sum(row["deliveries"] for row in run["series"]) == 1500
    latency = run["window_latency"]
    assert latency["from_batch"]["count"] == 500, "every message of one subscriber of three"
    assert sum(count for row in latency["intervals"] for _, count in row["window_us"]) == 500
    assert 0 < latency["from_batch"]["p50_us"] <= latency["from_batch"]["max_us"]
    assert run["target_cpu_s"] > 0


@pytest.mark.parametrize("transport", ["tcp", "ws"])
def test_the_ideal_relay_forwards_every_message(transport: str, tmp_path: Path) -> None:
    run = repetition("relay", tmp_path, transport=transport, relay=True)
    assert (run["messages"], run["deliveries"]) == (500, 1500)
    assert run["target_cpu_s"] > 0 and run["peak_rss_bytes"] > 100_000


@pytest.mark.soak
@pytest.mark.timeout(200)
@pytest.mark.parametrize("transport", ["tcp", "ws"])
@pytest.mark.parametrize("name", ["rabbitmq", "artemis"])
def test_a_stomp_speaker_is_checked_message_by_message(name: str, transport: str, tmp_path: Path) -> None:
    run = repetition(name, tmp_path, transport=transport, transports=[transport])
    assert (run["messages"], run["deliveries"]) == (500, 1500)


def test_a_peer_names_the_workloads_it_can_not_run() -> None:
    fan = Point("fan", "tcp", None, {})
    assert PEERS["rabbitmq"].refuses(fan) == PEERS["redis"].refuses(fan) == ""
    assert PEERS["redis"].refuses(Point("fan", "ws", None, {})) == "it is not measured over ws"
    assert "kind latency" in PEERS["nats"].refuses(Point("late", "tcp", None, {"kind": "latency"}))
    assert "kind idle" in PEERS["rabbitmq"].refuses(Point("idle", "tcp", None, {"kind": "idle"}))
    assert "more than bytes" in PEERS["relay"].refuses(fan)
    assert PEERS["relay"].refuses(Point("fan", "ws", None, {"relay": True})) == ""
    assert "plain fan-out" in PEERS["mosquitto"].refuses(Point("own", "tcp", None, {"joint": True}))
    assert "twice" in PEERS["mosquitto"].refuses(Point("mux", "tcp", None, {"subscriptions": 75}))


def test_a_missing_peer_names_what_was_searched_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("stompica.bench.peers.base._FOLDERS", ())
    with pytest.raises(Missing, match="no program redis-server or valkey-server"):
        PEERS["redis"].find()
    monkeypatch.setattr("stompica.bench.peers.rabbitmq._HOMES", (str(tmp_path),))
    monkeypatch.delenv("RABBITMQ_HOME", raising=False)
    with pytest.raises(Missing, match="no rabbitmq-server below"):
        PEERS["rabbitmq"].find()


def test_the_log_of_a_server_that_ends_at_once_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho 'no room left'\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BenchError, match=r"does not listen on \d+:\nno room left"), PEERS["redis"].start(tmp_path):
        pass


@contextmanager
def nats(deliver: list[bytes]) -> Iterator[int]:
    """Greets a publisher and a subscriber. After the first publication the subscriber gets the parts of `deliver`.

    Before an empty part it waits for the next publication.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hello(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(b"INFO {}\r\nPONG\r\n")

        def serve() -> None:
            subscriber, _ = listener.accept()
            hello(subscriber)
            subscriber.recv(65536)
            subscriber.sendall(b"PONG\r\n")
            publisher, _ = listener.accept()
            hello(publisher)
            publisher.recv(65536)
            with subscriber, publisher:
                for part in deliver:
                    if not part:
                        publisher.recv(65536)
                    subscriber.sendall(part)
                if not deliver[-1].endswith(b"\n"):
                    subscriber.shutdown(socket.SHUT_RDWR)
                while publisher.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


MESSAGE = b"MSG bench-0 1 1\r\nx\r\n"


@pytest.mark.parametrize(
    ("deliver", "what"),
    [
        ([MESSAGE, MESSAGE[:-1]], "closed by the peer"),
        ([MESSAGE * 3], "more bytes arrived than were sent"),
    ],
)
def test_missing_or_surplus_bytes_fail_the_run(
    capsys: pytest.CaptureFixture[str], deliver: list[bytes], what: str
) -> None:
    numbers = ["--publishers=1", "--connections=1", "--body=1", "--messages=2", "--window=9", "--series=100"]
    with nats(deliver) as port:
        assert bytecount.main(["nats", f"127.0.0.1:{port}", str(os.getpid()), *numbers, "--min-cpu=0"]) == 1
    assert what in json.loads(capsys.readouterr().out)["fault"]


def test_pings_are_answered_and_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = ["--publishers=1", "--connections=1", "--body=1", "--messages=2", "--window=9", "--series=100"]
    # A ping between messages, and one in pieces; a round to warm up, and one that counts.
    deliver = [MESSAGE + b"PING\r\n" + MESSAGE, b"", MESSAGE + b"PI", b"NG", b"\r\n", MESSAGE]
    with nats(deliver) as port:
        status = bytecount.main(["nats", f"127.0.0.1:{port}", str(os.getpid()), *numbers, "--min-cpu=0"])
    run = json.loads(capsys.readouterr().out)
    assert (status, run["fault"], run["deliveries"]) == (0, None, 2)


def test_the_harness_runs_the_byte_counter_of_the_source_tree(tmp_path: Path) -> None:
    fields = {"connections": 1, "body": 1, "messages": 2, "window": 9, "min_cpu_s": 0.0}
    # A round to warm up, and one that counts.
    with nats([MESSAGE * 2, b"", MESSAGE * 2]) as port:
        target = Running("nats", "2.0", os.getpid(), {"tcp": ("127.0.0.1", port)}, "nats")
        order = loadgen.Order(Point("tiny", "tcp", None, fields), target, 100, None)
        run = loadgen.run(Path("none"), order, tmp_path, lambda pid: None)
    assert (run["fault"], run["messages"], run["deliveries"]) == (None, 2, 2)


def test_latencies_count_from_the_write_of_a_batch() -> None:
    ms = 1_000_000
    latency = WindowLatency(2)
    latency.writing(1, 50, 0)
    latency.arrived(1, 0, 50, 1 * ms)
    latency.forget()
    latency.writing(1, 100, 2 * ms)
    latency.writing(1, 150, 5 * ms)
    latency.arrived(1, 50, 120, 6 * ms)
    latency.end_interval(0, 10_000)
    latency.arrived(1, 120, 120, 9 * ms)
    latency.arrived(1, 120, 150, 15 * ms)
    latency.end_interval(10_000, 10_000)
    found = latency.result()
    # 1,000 µs and 4,000 µs, then 10,000 µs, each in the bucket of a recording that contains it.
    assert [row["window_us"] for row in found["intervals"]] == [[(1003, 20), (4015, 50)], [(10047, 30)]]
    assert [histogram.bounds(high)[1] for high in (1000, 4000, 10000)] == [1003, 4015, 10047]
    assert found["from_batch"] == {
        "p50_us": 4000.0, "p99_us": 10000.0, "p999_us": 10000.0, "max_us": 10000.0, "count": 100,
    }  # fmt: skip


def test_old_batches_are_dropped_and_recent_ones_are_kept() -> None:
    latency = WindowLatency(1)
    for end in range(1, 3 * BATCHES_MAX):
        latency.writing(0, end, 0)
    latency.arrived(0, 3 * BATCHES_MAX - 10, 3 * BATCHES_MAX - 1, 7000)
    latency.end_interval(0, 1)
    assert latency.result()["from_batch"]["count"] == 9


def test_lengths_of_mqtt_packets_have_digits_to_base_128() -> None:
    protocol = bytecount.PROTOCOLS["mqtt"]
    assert protocol.publish("t", b"x" * 10)[:2] == b"\x30\x0d"
    assert protocol.publish("t", b"x" * 125)[:3] == b"\x30\x80\x01"
    assert len(protocol.publish("t", b"x" * 125)) == 3 + 128


def test_peers_that_need_the_byte_counter_say_where_to_find_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho v=7.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert PEERS["redis"].find() == "7.0"
    monkeypatch.setattr(loadgen, "source_trees", lambda start=None: iter(()))
    with pytest.raises(Missing, match=r"bench/peers/bytecount\.py, exists only in stompica's source tree"):
        PEERS["redis"].find()
    order = loadgen.Order(Point("fan", "tcp", None, {}), Running("redis", "7.0", 1, {}, "redis"), 100, None)
    with pytest.raises(BenchError, match=r"redis: its load generator, .*: run this there"):
        loadgen.run(Path("none"), order, tmp_path, lambda pid: None)
