"""The log of a broker inside a Python process goes to `logging` (docs/behaviour.md, section 10)."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from stompica import Broker
from tests.api.sessions import connect


def test_logs_reach_logging(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="stompica")
    with Broker(log_level="debug", debug=True) as broker:
        connect(broker).close()
        broker.settle()
    records = [record for record in caplog.records if record.name == "stompica"]
    assert records and all(isinstance(record.created, float) for record in records)


def test_logs_reach_a_given_logger() -> None:
    class Keep(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.records: list[logging.LogRecord] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.records.append(record)

    own, keep = logging.getLogger("my.broker"), Keep()
    own.addHandler(keep)
    own.setLevel(logging.DEBUG)
    with Broker(debug=True, logger=own) as broker:
        connect(broker).close()
    assert keep.records and keep.records[0].name == "my.broker"


def test_a_client_cannot_forge_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="stompica")
    with Broker() as broker, connect(broker) as client:
        client.sendall(b"SEND\ndestination:/topic/a\\n2030-01-01 INFO forged*\n\n\0")
        assert client.recv(4096).startswith(b"ERROR")
    messages = [record.getMessage() for record in caplog.records if "forged" in record.getMessage()]
    assert messages and all("/topic/a\\n2030-01-01 INFO forged" in message for message in messages)


class Failing(logging.Handler):
    """Raises at the first record, and notes the record that says that a client is connected."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.error = error
        self.connected = threading.Event()

    def _fail(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error

    def emit(self, record: logging.LogRecord) -> None:
        self._fail()
        if record.getMessage().startswith("connected, "):
            self.connected.set()


class FailingFilter(Failing):
    """Raises in `filter` instead of `emit`."""

    def filter(self, record: logging.LogRecord) -> bool:
        self._fail()
        return True


@pytest.mark.parametrize("error", [RuntimeError("bad handler"), SystemExit(3)])
@pytest.mark.parametrize("kind", [Failing, FailingFilter])
def test_a_handler_that_raises_loses_only_that_record(
    kind: type[Failing], error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    own, handler = logging.Logger("failing", logging.DEBUG), kind(error)
    own.addHandler(handler)
    with Broker(debug=True, logger=own) as broker:
        connect(broker).close()
        assert handler.connected.wait(20)
    errors = capsys.readouterr().err
    assert "--- Logging error ---" in errors and type(error).__name__ in errors


def test_a_record_that_cannot_be_made_is_the_only_one_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record factory may use a field name of stompica's. No error is shown if logging.raiseExceptions is false."""
    own, handler, made = logging.Logger("own", logging.DEBUG), Failing(None), 0
    make = own.makeRecord

    def make_but_one(*arguments: Any, **more: Any) -> logging.LogRecord:
        nonlocal made
        made += 1
        if made == 1:
            raise KeyError("fields")
        return make(*arguments, **more)

    own.addHandler(handler)
    monkeypatch.setattr(own, "makeRecord", make_but_one)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with Broker(debug=True, logger=own) as broker:
        connect(broker).close()
        assert handler.connected.wait(20)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("logger", [5, "stompica", logging.LoggerAdapter(logging.getLogger("x"), {})])
def test_a_logger_of_another_type_is_a_type_error(logger: Any) -> None:
    with pytest.raises(TypeError, match=rf"^logger is a logging\.Logger or None, not {type(logger).__name__}$"):
        Broker(logger=logger)
