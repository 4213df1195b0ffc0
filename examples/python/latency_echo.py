"""Measures the time of a message through the broker to an echoing client, and back through the broker.

    python latency_echo.py --port 61613 --count 1000

One connection sends to `/topic/latency/ping`, another answers every message on `/topic/latency/pong`. The measured time
includes that of both clients, and Python takes far more than the broker: compare with the load generator.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import time

import stomp

PING = "/topic/latency/ping"
PONG = "/topic/latency/pong"


class Client(stomp.ConnectionListener):
    """A connected session that can wait until it is subscribed."""

    def __init__(self, host: str, port: int) -> None:
        self.receipts: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.connection = stomp.Connection12([(host, port)], vhost=host)
        self.connection.set_listener("client", self)
        try:
            self.connection.connect(wait=True)
        except stomp.exception.ConnectFailedException:
            raise SystemExit(f"no broker answers at {host}:{port}") from None

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def subscribe(self, destination: str) -> None:
        """Returns when the subscription has taken effect."""
        self.connection.subscribe(destination, id="1", headers={"receipt": "subscribed"})
        self.receipts.get(timeout=10)


class Echo(Client):
    """Sends every message back."""

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.connection.send(PONG, frame.body)


class Meter(Client):
    """Records when each answer arrives."""

    def __init__(self, host: str, port: int) -> None:
        self.arrivals_ns: queue.SimpleQueue[int] = queue.SimpleQueue()
        super().__init__(host, port)

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.arrivals_ns.put(time.perf_counter_ns())

    def round_trip_us(self, body: str) -> float:
        """Sends one message and waits for its answer."""
        sent_ns = time.perf_counter_ns()
        self.connection.send(PING, body)
        return (self.arrivals_ns.get(timeout=10) - sent_ns) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures round trips through the broker.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=61613)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()

    echo = Echo(options.host, options.port)
    echo.subscribe(PING)
    meter = Meter(options.host, options.port)
    meter.subscribe(PONG)

    round_trips_us = [meter.round_trip_us(str(number)) for number in range(options.count)]
    hundredths = statistics.quantiles(round_trips_us, n=100)
    print(
        f"{options.count} round trips: p50 {hundredths[49]:.0f} us, p90 {hundredths[89]:.0f} us,"
        f" p99 {hundredths[98]:.0f} us, max {max(round_trips_us):.0f} us"
    )
    for client in (meter, echo):
        client.connection.disconnect(receipt="bye")


if __name__ == "__main__":
    main()
