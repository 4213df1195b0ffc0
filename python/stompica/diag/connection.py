"""One STOMP 1.2 connection for requests and subscriptions, shared by threads.

    request ──► transport ──► broker
    request ◄── answers  ◄─┐
    watches ◄── MESSAGEs ◄─┴─ the reader's thread

A separate thread reads at once whatever arrives: an idle watch must not become a slow consumer, for which the broker
would stop publishers and in the end close the connection.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from typing import Protocol

from stompica.diag import frames
from stompica.diag.frames import Frame
from stompica.diag.records import DiagError
from stompica.diag.transport import FRAME_MAX, Transport

JOIN_TIMEOUT_S = 2.0
"""How long `close` waits for the reader's thread."""


class Subscriber(Protocol):
    """A receiver of MESSAGEs. The reader's thread calls both methods; they must not block."""

    def offer(self, frame: Frame) -> None:
        """Takes a MESSAGE."""

    def end(self, failure: DiagError | None) -> None:
        """No more MESSAGEs will come, because of `failure`, or without one because the connection was closed here."""


class Connection:
    """A connection over `transport` to the broker that errors call `shown`. Answers are awaited for `timeout` s."""

    def __init__(self, transport: Transport, shown: str, timeout: float | None) -> None:
        self.shown = shown
        self.timeout = timeout
        self._transport = transport
        self._asking = threading.Lock()
        self._sending = threading.Lock()
        self._answers: queue.SimpleQueue[Frame | DiagError] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Weak: a watch dropped without `close` is detected, and unsubscribed, when its next MESSAGE comes.
        self._subscribers: dict[str, weakref.ReferenceType[Subscriber]] = {}
        self._last_id = 0
        self._failure: DiagError | None = None
        self._reader = threading.Thread(target=self._read, name="stompica-diag", daemon=True)
        self._reader.start()

    def exchange(self, command: str, headers: dict[str, str], body: bytes, wanted: str) -> Frame:
        """Sends a frame and returns the answer, which has the command `wanted`. DiagError for any other outcome."""
        with self._asking:
            self._send(frames.encode(command, headers, body))
            try:
                answer = self._answers.get(timeout=self.timeout)
            except queue.Empty:
                # A late answer would be taken for the answer to the next request.
                failure = DiagError(f"{self.shown} did not answer in time")
                self._end(failure, reported=failure)
                self._transport.close()
                raise DiagError(str(failure)) from None
            if isinstance(answer, DiagError):
                self._answers.put(answer)  # for the next request, which fails too
                raise DiagError(str(answer))
        if answer.command != wanted:
            raise DiagError(f"{self.shown} answered {command} with {answer.command}: is it stompica?")
        return answer

    def subscribe(self, subscriber: Subscriber, destination: str, headers: dict[str, str]) -> str:
        """Subscribes; returns the id. DiagError if the connection has ended."""
        with self._lock:
            if self._failure is not None:
                raise DiagError(str(self._failure))
            self._last_id += 1
            key = str(self._last_id)
            self._subscribers[key] = weakref.ref(subscriber)
        self._send(frames.encode("SUBSCRIBE", {"id": key, "destination": destination, **headers}))
        return key

    def unsubscribe(self, key: str) -> None:
        """Ends a subscription, if it is still there."""
        with self._lock:
            if self._subscribers.pop(key, None) is None:
                return
        self._send(frames.encode("UNSUBSCRIBE", {"id": key}))

    def close(self) -> None:
        """Closes the connection and ends all subscriptions. Idempotent."""
        self._end(DiagError(f"{self.shown}: connection closed"), reported=None)
        self._transport.close()
        if threading.current_thread() is not self._reader:
            self._reader.join(JOIN_TIMEOUT_S)

    def _send(self, frame: bytes) -> None:
        # If it fails, the reader gets the reason, an ERROR or the end of the connection, and reports it.
        with self._sending, contextlib.suppress(OSError, EOFError):
            self._transport.send(frame)

    def _end(self, failure: DiagError, reported: DiagError | None) -> None:
        """Records the end, the first time only; subscribers get `reported`."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = failure
            ended = [found for reference in self._subscribers.values() if (found := reference()) is not None]
            self._subscribers.clear()
        for subscriber in ended:
            subscriber.end(reported)
        self._answers.put(failure)

    def _read(self) -> None:
        buffer = bytearray()
        failure = DiagError(f"{self.shown}: its reader failed")  # the thread's traceback has the reason
        try:
            while True:
                self._dispatch(self._receive(buffer))
        except DiagError as error:
            failure = error
        except ValueError as error:
            failure = DiagError(f"{self.shown} does not speak STOMP: {error}")
        except (OSError, EOFError) as error:
            failure = DiagError(f"{self.shown}: {error or 'connection closed'}")
        finally:
            self._end(failure, reported=failure)
            self._transport.close()

    def _receive(self, buffer: bytearray) -> Frame:
        while (frame := frames.take(buffer)) is None:
            if len(buffer) > FRAME_MAX:
                raise DiagError(f"{self.shown} sent a frame over {FRAME_MAX >> 20} MiB")
            try:
                received = self._transport.receive()
            except TimeoutError:
                continue  # a request has its own timeout
            except ConnectionResetError:
                received = b""  # an abrupt end is an end
            if not received:
                raise EOFError("closed the connection")
            buffer += received
        return frame

    def _dispatch(self, frame: Frame) -> None:
        if frame.command == "ERROR":
            reason = " ".join(frame.headers.get("message", "ERROR").split())
            raise DiagError(f"{self.shown} refused: {reason}")
        if frame.command != "MESSAGE":
            self._answers.put(frame)
            return
        key = frame.headers.get("subscription", "")
        with self._lock:
            reference = self._subscribers.get(key)
        if reference is None:
            return  # sent before the UNSUBSCRIBE arrived
        subscriber = reference()
        if subscriber is None:
            self.unsubscribe(key)
        else:
            subscriber.offer(frame)
