"""One STOMP 1.2 connection that asks questions and holds subscriptions, for all threads that want to.

    question ──► pipe ──► broker
    question ◄── answers ◄─┐
    watches  ◄── MESSAGEs ◄┴─ the reader's thread

A thread of its own reads whatever comes at once: a watch that nobody takes records from must not become a slow
consumer of the broker, which would stop its publishers and in the end disconnect it.
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
from stompica.diag.transport import FRAME_MAX, Pipe

JOIN_TIMEOUT_S = 2.0
"""How long a close waits for the reader's thread."""


class Subscriber(Protocol):
    """What MESSAGEs go to. Both are called by the reader's thread and must not wait for anything."""

    def offer(self, frame: Frame) -> None:
        """A MESSAGE has come."""

    def end(self, failure: DiagError | None) -> None:
        """No more will come: because of this, or because the connection was closed here."""


class Connection:
    """A connection over `pipe` to the broker that messages call `shown`. No answer takes longer than `timeout` s."""

    def __init__(self, pipe: Pipe, shown: str, timeout: float | None) -> None:
        self.shown = shown
        self.timeout = timeout
        self._pipe = pipe
        self._asking = threading.Lock()
        self._sending = threading.Lock()
        self._answers: queue.SimpleQueue[Frame | DiagError] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Weak: a watch that was dropped without `close` is noticed, and unsubscribed, when its next MESSAGE comes.
        self._subscribers: dict[str, weakref.ReferenceType[Subscriber]] = {}
        self._last_id = 0
        self._failure: DiagError | None = None
        self._reader = threading.Thread(target=self._read, name="stompica-diag", daemon=True)
        self._reader.start()

    def exchange(self, command: str, headers: dict[str, str], body: bytes, wanted: str) -> Frame:
        """Sends a frame and returns the answer, a frame `wanted`. DiagError where there is none."""
        with self._asking:
            self._send(frames.encode(command, headers, body))
            try:
                answer = self._answers.get(timeout=self.timeout)
            except queue.Empty:
                # A late answer would be taken for that of the next question.
                failure = DiagError(f"{self.shown} did not answer in time")
                self._end(failure, told=failure)
                self._pipe.close()
                raise DiagError(str(failure)) from None
            if isinstance(answer, DiagError):
                self._answers.put(answer)  # whoever asks next is told, too
                raise DiagError(str(answer))
        if answer.command != wanted:
            raise DiagError(f"{self.shown} answered {command} with {answer.command}: is it stompica?")
        return answer

    def subscribe(self, subscriber: Subscriber, destination: str, headers: dict[str, str]) -> str:
        """Subscribes; returns the id. DiagError where the connection has ended."""
        with self._lock:
            if self._failure is not None:
                raise DiagError(str(self._failure))
            self._last_id += 1
            key = str(self._last_id)
            self._subscribers[key] = weakref.ref(subscriber)
        self._send(frames.encode("SUBSCRIBE", {"id": key, "destination": destination, **headers}))
        return key

    def unsubscribe(self, key: str) -> None:
        """Ends a subscription, if it has not ended."""
        with self._lock:
            if self._subscribers.pop(key, None) is None:
                return
        self._send(frames.encode("UNSUBSCRIBE", {"id": key}))

    def close(self) -> None:
        """Closes the connection and ends what is subscribed. Twice is fine."""
        self._end(DiagError(f"{self.shown}: connection closed"), told=None)
        self._pipe.close()
        if threading.current_thread() is not self._reader:
            self._reader.join(JOIN_TIMEOUT_S)

    def _send(self, frame: bytes) -> None:
        # Where it fails the reader knows why, from an ERROR or the end, and tells whoever waits.
        with self._sending, contextlib.suppress(OSError, EOFError):
            self._pipe.send(frame)

    def _end(self, failure: DiagError, told: DiagError | None) -> None:
        """Takes note of the end, the first time; subscribers are told `told`."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = failure
            ended = [found for reference in self._subscribers.values() if (found := reference()) is not None]
            self._subscribers.clear()
        for subscriber in ended:
            subscriber.end(told)
        self._answers.put(failure)

    def _read(self) -> None:
        buffer = bytearray()
        failure = DiagError(f"{self.shown}: its reader failed")  # which its thread's traceback explains
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
            self._end(failure, told=failure)
            self._pipe.close()

    def _receive(self, buffer: bytearray) -> Frame:
        while (frame := frames.take(buffer)) is None:
            if len(buffer) > FRAME_MAX:
                raise DiagError(f"{self.shown} sent a frame over {FRAME_MAX >> 20} MiB")
            try:
                received = self._pipe.receive()
            except TimeoutError:
                continue  # whoever waits for an answer has a limit of its own
            except ConnectionResetError:
                received = b""  # the same, said in a hurry
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
            return  # sent before the UNSUBSCRIBE came
        subscriber = reference()
        if subscriber is None:
            self.unsubscribe(key)
        else:
            subscriber.offer(frame)
