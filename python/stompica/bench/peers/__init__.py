"""Other brokers, to measure them with the same workload as this one.

Each adapter finds an installed server, starts it on free ports of loopback with its data in a scratch folder, and stops
it. Nothing is installed, and no running server is touched.
"""

from __future__ import annotations

from stompica.bench.peers.artemis import Artemis
from stompica.bench.peers.base import Missing, Peer
from stompica.bench.peers.pubsub import Mosquitto, Nats, Redis
from stompica.bench.peers.rabbitmq import RabbitMQ
from stompica.bench.peers.relay import Relay

PEERS: dict[str, Peer] = {peer.name: peer for peer in (Relay(), RabbitMQ(), Artemis(), Redis(), Nats(), Mosquitto())}
"""All adapters by name."""

__all__ = ["PEERS", "Missing", "Peer"]
