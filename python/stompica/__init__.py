"""A STOMP 1.0-1.2 message broker over TCP and WebSocket, as a command or inside this process.

>>> import stompica
>>> with stompica.Broker() as broker:
...     host, port = broker.address
"""

from __future__ import annotations

import importlib
from types import ModuleType

from stompica._core import __version__
from stompica.broker import Broker, Connection
from stompica.c_stompica import run, run_default
from stompica.errors import BrokerFailed, ConfigError, NotRunning, StartError, StompicaError

__all__ = [
    "Broker",
    "BrokerFailed",
    "ConfigError",
    "Connection",
    "NotRunning",
    "StartError",
    "StompicaError",
    "__version__",
    "run",
    "run_default",
]


def __getattr__(name: str) -> ModuleType:
    """Imports `stompica.diag` on first access."""
    if name == "diag":
        return importlib.import_module("stompica.diag")
    raise AttributeError(f"module 'stompica' has no attribute {name!r}")
