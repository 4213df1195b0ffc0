"""The exceptions of stompica.

    StompicaError
    ├── ConfigError      (also a ValueError)    a setting is unknown, out of range or not built yet
    ├── StartError       (also an OSError)      the broker can't start: port in use, no such address
    ├── NotRunning       (also a RuntimeError)  the broker was not started, or has ended
    ├── BrokerFailed     (also a RuntimeError)  a broker thread panicked: a bug; the broker has stopped
    ├── StoreError                              a store can't be read or changed by `stompica store`
    └── DiagError                              a query of `stompica.diag` failed

Each message is one line.
"""

from __future__ import annotations


class StompicaError(Exception):
    """Base class of this package's own exceptions."""


class ConfigError(StompicaError, ValueError):
    """A setting is unknown, out of range or not built yet; the message names it, its value and what is allowed."""


class StartError(StompicaError, OSError):
    """The broker can't start; the message names the address or the setting."""


class NotRunning(StompicaError, RuntimeError):
    """The operation needs a running broker; this one was not started, or has ended."""


class BrokerFailed(StompicaError, RuntimeError):
    """A broker thread panicked. That is a bug; the whole broker has stopped."""


class StoreError(StompicaError):
    """A store, or what is imported into one, can't be read or changed; the message names the directory or the file."""
