"""Plays steps against a broker with real connections, and tells the model all that goes out and comes in."""

from __future__ import annotations

import collections
import contextlib
import random
import select
import time
from collections.abc import Callable, Iterator

from tests.model.model import Model, undelivered
from tests.model.state import Command, Consumer, Delivery, Outcome, Presence, Rules, Transaction, Violation
from tests.model.steps import Step
from tests.support import frames
from tests.support.parser import Frame
from tests.support.wire import Wire
from tests.support.ws import WebSocket

PATIENCE = 30.0
"""Seconds until what the broker owes counts as forgotten."""
CLIENTS_MAX = 5
PREFETCH_NAMES = ("prefetch-count", "activemq.prefetchSize", "prefetch")


class TcpLink(Wire):
    """A TCP connection whose frames are taken as they come."""

    def read(self) -> list[Frame] | None:
        """What one read brings; `None` at the end of the stream. Call it when the socket is readable."""
        if not self.receive_some():
            assert self._parser.unread == b"", f"half a frame before the end: {self._parser.unread[:300]!r}"
            return None
        return self._whole_frames()

    def _whole_frames(self) -> list[Frame]:
        found = []
        while (frame := self._parser.next_frame()) is not None:
            found.append(frame)
        return found


class WebSocketLink(WebSocket):
    """The same over WebSocket."""

    def read(self) -> list[Frame] | None:
        """As `TcpLink.read`; reads on while whole messages wait in its own buffer."""
        found: list[Frame] = []
        while True:
            if not self.receive_some():
                return found or None
            while (frame := self._parser.next_frame()) is not None:
                found.append(frame)
            if not self.stream.buffer:
                return found

    @property
    def at_end(self) -> bool:
        """Whether the Close came together with the last frames."""
        return self.closed is not None


class Fence:
    """A connection on every shard, to learn by the protocol alone that the broker has nothing left to do.

    Connections are dealt out to the shards in turn. A shard has noticed a reset by the second time that it answers on
    another connection, and has told the queues' homes by then. SUBSCRIBE's RECEIPT needs an answer from every shard,
    which stands behind whatever the two had to tell each other. One more round brings back what a home had sent to a
    consumer before it knew of its loss.
    """

    def __init__(self, port: int, writers: int) -> None:
        self._wires = [Wire(port) for _ in range(writers)]
        for wire in self._wires:
            wire.connect()

    def wait(self) -> None:
        """Returns when everything caused before has happened (but for delays and timeouts)."""
        for _ in range(4):
            for wire in self._wires:
                wire.subscribe("/topic/fence")
                wire.send(frames.unsubscribe("0", receipt="u"))
                wire.expect_receipt("u")

    def close(self) -> None:
        """Closes the connections."""
        for wire in self._wires:
            wire.discard()


class Client:
    """One connection and what the runner has to remember of it."""

    def __init__(self, name: str, version: str, link: TcpLink | WebSocketLink) -> None:
        self.name = name
        self.version = version
        self.link = link
        self.pending: collections.deque[tuple[str, Command]] = collections.deque()
        self.consumers: list[Consumer] = []
        self.transactions: list[Transaction] = []
        self.leaving = ""
        """Why the broker will close it: `disconnect`, `half_close`, `error`; empty while it stays."""
        self.expects_error = False
        self.drains = False
        """It acknowledges whatever comes at once."""
        self.numbers = 0

    def number(self) -> int:
        """The next number for ids of this client."""
        self.numbers += 1
        return self.numbers

    def __str__(self) -> str:
        return self.name


class Runner:
    """One run: fresh queues, fresh clients, one model."""

    def __init__(self, port: int, run: str, rules: Rules, fence: Fence, *, websockets: bool = True) -> None:
        self.port = port
        self.fence = fence
        self.model = Model(rules)
        self.rules = rules
        self.websockets = websockets
        # A 1.1 ACK names the message, not the delivery: after a timeout it may mean the next one.
        self.versions = ("1.2", "1.2", "1.0") if rules.ack_timeout else ("1.2", "1.2", "1.1", "1.0")
        self.queues = [f"/queue/{run}/a", f"/queue/{run}/b", f"/queue/{run}/c/d"]
        self.patterns = [
            *self.queues,
            *self.queues[:2],
            f"/queue/{run}/*",
            f"/queue/{run}/>",
            f"/queue/{run}/*/d",
            f"/queue/dlq/{run}/*",
        ]
        self.everything = [f"/queue/{run}/>", f"/queue/dlq/{run}/>"]
        self.clients: list[Client] = []
        self.trace: list[str] = []
        self._made = 0
        self._bodies = 0
        self._began = time.monotonic()

    # -- the run -----------------------------------------------------------------------------------------------

    def run(self, steps: list[Step], seed: int) -> None:
        """All steps, then the end."""
        try:
            for step in steps:
                self.step(step)
            self.finish(seed)
        finally:
            self.discard()

    def step(self, step: Step) -> None:
        """Takes what has come, then does one thing; a step whose `c` is odd waits for the RECEIPTs of it."""
        with self._told():
            self._pump(0)
            client = self._step(step)
            if client is not None and step.c & 1:
                self._answered(client)

    def finish(self, seed: int) -> None:
        """Every client leaves, then a fresh one drains the queues: nothing may be left."""
        with self._told():
            self._end(random.Random(seed))

    def discard(self) -> None:
        """Closes whatever is open."""
        for client in self.clients:
            client.link.discard()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Makes a `Violation` of every failure, with the end of what happened before."""
        try:
            yield
        except (AssertionError, OSError) as error:
            tail = "\n".join(self.trace[-400:])
            raise Violation(f"{error}\n{tail}") from error

    def _step(self, step: Step) -> Client | None:
        if step.kind == "connect":
            return self._connect(step)
        if step.kind == "quiet":
            self.quiet()
            return None
        if step.kind == "timeout":
            self._wait_for_timeout()
            return None
        if step.kind == "settle":
            self.settle_down()
            return None
        if all(client.leaving for client in self.clients):
            self._connect(step)
        able = [client for client in self.clients if not client.leaving and self._can(client, step.kind)]
        if not able:
            return None
        client = able[step.a % len(able)]
        act: Callable[[Client, Step], None] = getattr(self, f"_{step.kind}")
        act(client, step)
        return client

    def _can(self, client: Client, kind: str) -> bool:
        """Whether the step would do anything there, so that few steps are wasted."""
        if kind in ("ack", "tx_ack", "nack", "tx_nack"):
            return bool(self._choices(client, kind))
        if kind in ("commit", "abort", "tx_send", "commit_and_reset"):
            return bool(self._open(client))
        if kind == "unsubscribe":
            return any(each.end_asked is None for each in client.consumers)
        if kind == "late_ack":
            return bool(self._taken_back(client))
        return True

    def _end(self, chance: random.Random) -> None:
        if chance.random() < 0.3:
            self.quiet()
        for client in [client for client in self.clients if not client.leaving]:
            step = Step("end", 0, 0, 0)
            chance.choice([self._disconnect, self._reset, self._reset, self._half_close])(client, step)
            self._pump(0)
        self._until(lambda: not self.clients, "every client has left")
        if chance.random() < 0.7:
            self.settle_down()
        self._note("-- drain")
        drain = self._join("1.2", websocket=False)
        drain.drains = True
        for pattern in self.everything:
            self._subscribe_to(drain, pattern, "client-individual", chance.choice([0, 1, 5]))
        self.quiet()
        homes = {message.home for message in self.model.messages.values()} | set(self.queues)
        for queue in sorted(homes):  # behind all that is left, if anything is
            self._send_one(drain, queue)
        self.quiet()
        self.settle_down()
        self.quiet()
        self.model.fenced()
        self.quiet()
        self.model.finish()

    def quiet(self) -> None:
        """Waits until every RECEIPT is there and everything that must come has come."""
        for client in list(self.clients):
            self._answered(client)
        self._until(lambda: not self.model.owed(), lambda: f"owed: {undelivered(self.model.owed())}")
        for client in list(self.clients):
            self._answered(client)
        if self.model.owed():
            self.quiet()

    def settle_down(self) -> None:
        """Waits until no shard has anything to tell another; then what lost consumers held is back for certain."""
        self._note("-- settle")
        self.fence.wait()
        self._pump(0)
        self.model.settled_down()

    def _answered(self, client: Client) -> None:
        self._until(
            lambda: not client.pending or client not in self.clients,
            lambda: f"no RECEIPT for {client.pending[0][1]}",
        )

    def _until(self, check: Callable[[], bool], what: str | Callable[[], str]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not check():
            left = deadline - time.monotonic()
            if left <= 0:
                raise Violation(f"within {PATIENCE} s: {what if isinstance(what, str) else what()}")
            self._pump(min(left, 0.05))

    # -- what comes in -----------------------------------------------------------------------------------------

    def _pump(self, timeout: float) -> None:
        """Takes whatever has arrived, waiting up to `timeout` seconds for the first of it."""
        by_socket = {client.link.sock: client for client in self.clients}
        ready, _, _ = select.select(list(by_socket), [], [], timeout)
        for sock in ready:
            client = by_socket[sock]
            found = client.link.read()
            for frame in found or ():
                self._take(client, frame)
            if found is None or (isinstance(client.link, WebSocketLink) and client.link.at_end):
                self._closed(client)

    def _take(self, client: Client, frame: Frame) -> None:
        if frame.command == "MESSAGE":
            self._take_message(client, frame)
        elif frame.command == "RECEIPT":
            self._note(f"{client} <- RECEIPT {frame['receipt-id']}")
            if not client.pending or client.pending[0][0] != frame["receipt-id"]:
                raise Violation(f"{client}: {frame}, expected {[receipt for receipt, _ in client.pending]}")
            _, command = client.pending.popleft()
            self.model.receipt(command)
        else:
            self._take_error(client, frame)

    def _take_message(self, client: Client, frame: Frame) -> None:
        headers = dict(reversed(frame.headers))  # the first of a repeated one wins
        told = {
            name: headers[name] for name in ("redelivered", "delivery-count", "dead-letter-reason") if name in headers
        }
        self._note(f"{client}/{headers.get('subscription')} <- {frame.text} of {frame['destination']} {told or ''}")
        if headers.get("kept") != frame.text:
            raise Violation(f"the sender's header is gone: {frame}")
        delivery = self.model.message(client.name, frame["subscription"], frame.text, frame["destination"], headers)
        delivery.handle = frame
        if client.drains:
            self._settle(client, delivery, "ack")

    def _take_error(self, client: Client, frame: Frame) -> None:
        self._note(f"{client} <- {frame.command} {frame.header('code')} {frame.header('message')}")
        refused = [command for receipt, command in client.pending if receipt == frame.header("receipt-id")]
        if client.expects_error and frame.header("code") == "E-ACK-UNKNOWN":
            pass
        elif refused and frame.header("code") == "E-TX-LOST":
            self.model.refused(refused[0])
        else:
            raise Violation(f"{client} got {frame}")
        client.leaving = "error"

    def _closed(self, client: Client) -> None:
        self._note(f"{client} is closed")
        if not client.leaving or (client.expects_error and client.leaving != "error"):
            raise Violation(f"{client} was closed without a word")
        if client.leaving != "error" and client.pending:
            raise Violation(f"{client} was closed before the RECEIPT of {client.pending[0][1]}")
        self._forget(client, all_read=True)

    def _forget(self, client: Client, *, all_read: bool) -> None:
        self.clients.remove(client)
        client.link.discard()
        self.model.dropped(client.name, all_read=all_read)

    # -- what goes out -----------------------------------------------------------------------------------------

    def _note(self, line: str) -> None:
        self.trace.append(f"{(time.monotonic() - self._began) * 1000:8.1f} {line}")

    def _say(self, client: Client, command: Command, name: str, *pairs: frames.Header, body: str = "") -> None:
        """Sends a frame with a receipt, on the books before it is on the wire."""
        receipt = f"r{client.number()}"
        client.pending.append((receipt, command))
        self._note(f"{client} -> {name} {dict(pairs)} {body} ({receipt})")
        length = [("content-length", str(len(body)))] if body else []
        client.link.send(frames.frame(name, *pairs, *length, body=body, receipt=receipt))

    def _join(self, version: str, *, websocket: bool) -> Client:
        self._made += 1
        link: Wire = WebSocketLink.connected(self.port, version) if websocket else TcpLink(self.port)
        assert isinstance(link, (TcpLink, WebSocketLink))
        if not websocket:
            link.connect(None if version == "1.0" else version)
        client = Client(f"c{self._made}", version, link)
        self._note(f"{client} connects, {version}{' over WebSocket' if websocket else ''}")
        self.clients.append(client)
        return client

    def _connect(self, step: Step) -> Client | None:
        if len(self.clients) >= CLIENTS_MAX:
            return None
        return self._join(self.versions[step.a % len(self.versions)], websocket=self.websockets and step.b % 4 == 0)

    def _subscribe(self, client: Client, step: Step) -> None:
        modes = ["auto", "client", "client", "client-individual", "client-individual", "client-individual"]
        mode = modes[step.c // 2 % 6]
        if client.version == "1.0" and mode == "client-individual":
            mode = "client"
        self._subscribe_to(client, self.patterns[step.b % len(self.patterns)], mode, 1 + step.c // 12 % 5)

    def _subscribe_to(self, client: Client, pattern: str, mode: str, prefetch: int) -> None:
        id = f"s{client.number()}"
        command = self.model.subscribe(client.name, id, pattern, mode, 0 if mode == "auto" else prefetch)
        assert command.consumer is not None
        client.consumers.append(command.consumer)
        pairs = [("destination", pattern), ("id", id), ("ack", mode)]
        if mode != "auto":
            pairs.append((PREFETCH_NAMES[prefetch % 3], str(prefetch)))
        self._say(client, command, "SUBSCRIBE", *pairs)

    def _send(self, client: Client, step: Step) -> None:
        for _ in range(1 + step.c // 2 % 5):
            limit = 1 + step.c // 80 % 2 if step.c // 16 % 5 == 0 else None
            self._send_one(client, self.queues[step.b % len(self.queues)], max_exceptions=limit)

    def _send_one(
        self,
        client: Client,
        queue: str,
        transaction: Transaction | None = None,
        max_exceptions: int | None = None,
    ) -> None:
        self._bodies += 1
        body = f"m{self._bodies}"
        command = self.model.send(client.name, queue, body, max_exceptions=max_exceptions, transaction=transaction)
        pairs = [("destination", queue), ("kept", body)]
        if transaction is not None:
            pairs.append(("transaction", transaction.name))
        if max_exceptions is not None:
            pairs.append(("max-exceptions", str(max_exceptions)))
        self._say(client, command, "SEND", *pairs, body=body)

    def _held(self, client: Client, transaction: Transaction | None = None) -> list[Delivery]:
        """What this client may settle, on its own or in a transaction."""
        found = []
        for consumer in client.consumers:
            if consumer.end_asked is not None:
                continue
            for delivery in consumer.deliveries:
                if delivery.over or delivery.settle is not None:
                    continue
                if delivery.transaction is None:
                    found.append(delivery)
                elif consumer.mode == "client" and delivery.transaction is not transaction:
                    break  # whether a cumulative ACK speaks for one in an open transaction is left open
        return found

    def _settle(self, client: Client, delivery: Delivery, kind: str, transaction: Transaction | None = None) -> None:
        command = self.model.settle(delivery, kind, transaction)
        frame = delivery.handle
        assert isinstance(frame, Frame)
        pairs: list[frames.Header] = []
        if client.version == "1.2":
            pairs.append(("id", frame.raw_value(b"ack")))
        else:
            pairs.append(("message-id", frame.raw_value(b"message-id")))
        if client.version == "1.1":
            pairs.append(("subscription", delivery.consumer.id))
        if transaction is not None:
            pairs.append(("transaction", transaction.name))
        self._say(client, command, kind.upper(), *pairs)

    def _ack(self, client: Client, step: Step) -> None:
        for _ in range(1 + step.c // 2 % 2):
            held = self._choices(client, "ack")
            if held:
                self._settle(client, held[step.b % len(held)], "ack")

    def _nack(self, client: Client, step: Step) -> None:
        held = self._choices(client, "nack")
        chosen = held[step.b % len(held)]
        if step.c // 2 % 2:  # so that some fail often enough
            chosen = max(held, key=lambda each: each.message.failures_max)
        self._settle(client, chosen, "nack")

    def _choices(self, client: Client, kind: str) -> list[Delivery]:
        """What an `ack`, `nack`, `tx_ack` or `tx_nack` step may settle."""
        transaction = next(iter(self._open(client)), None) if kind.startswith("tx_") else None
        held = self._held(client, transaction)
        if kind.endswith("nack"):
            return [each for each in held if client.version != "1.0" and self._may_fail(each)]
        return held

    def _may_fail(self, delivery: Delivery) -> bool:
        """Dead letters are never refused here: what fails in a dead-letter queue is dropped for good."""
        return not any(each.message.dead for each in self.model.covered(delivery))

    def _open(self, client: Client) -> list[Transaction]:
        return [each for each in client.transactions if each.outcome is Outcome.OPEN]

    def _begin(self, client: Client, step: Step) -> None:
        name = f"t{client.number()}"
        command = self.model.begin(client.name, name)
        assert command.transaction is not None
        client.transactions.append(command.transaction)
        self._say(client, command, "BEGIN", ("transaction", name))

    def _tx_send(self, client: Client, step: Step) -> None:
        for transaction in self._open(client)[:1]:
            for extra in range(1 + step.c // 2 % 3):
                self._send_one(client, self.queues[(step.b + extra * (step.c // 8 % 2)) % 3], transaction)

    def _tx_ack(self, client: Client, step: Step) -> None:
        self._tx_settle(client, step, "ack")

    def _tx_nack(self, client: Client, step: Step) -> None:
        self._tx_settle(client, step, "nack")

    def _tx_settle(self, client: Client, step: Step, kind: str) -> None:
        if not self._open(client):
            self._begin(client, step)
        held = self._choices(client, f"tx_{kind}")
        self._settle(client, held[step.b % len(held)], kind, self._open(client)[0])

    def _commit(self, client: Client, step: Step) -> None:
        opened = self._open(client)
        transaction = opened[step.b % len(opened)]
        command = self.model.commit(transaction)
        self._say(client, command, "COMMIT", ("transaction", transaction.name))
        may_be_refused = command.doubtful or transaction.lost or (transaction.settled and self.rules.ack_timeout > 0)
        if may_be_refused:  # nothing more may leave there until that is known
            self._until(
                lambda: client not in self.clients or (not client.leaving and not client.pending),
                lambda: f"no answer to {command}",
            )

    def _abort(self, client: Client, step: Step) -> None:
        opened = self._open(client)
        transaction = opened[step.b % len(opened)]
        self._say(client, self.model.abort(transaction), "ABORT", ("transaction", transaction.name))

    def _unsubscribe(self, client: Client, step: Step) -> None:
        live = [each for each in client.consumers if each.end_asked is None]
        consumer = live[step.b % len(live)]
        self._say(client, self.model.unsubscribe(consumer), "UNSUBSCRIBE", ("id", consumer.id))

    def _disconnect(self, client: Client, step: Step) -> None:
        self._say(client, self.model.disconnect(client.name), "DISCONNECT")
        client.leaving = "disconnect"

    def _half_close(self, client: Client, step: Step) -> None:
        if isinstance(client.link, WebSocketLink):
            self._disconnect(client, step)
            return
        self.model.disconnect(client.name)
        self._note(f"{client} half-closes")
        client.leaving = "half_close"
        client.link.half_close()

    def _reset(self, client: Client, step: Step) -> None:
        self._note(f"{client} resets")
        client.link.reset()
        self._forget(client, all_read=False)

    def _commit_and_reset(self, client: Client, step: Step) -> None:
        transaction = self._open(client)[0]
        self._say(client, self.model.commit(transaction), "COMMIT", ("transaction", transaction.name))
        self._reset(client, step)

    def _late_ack(self, client: Client, step: Step) -> None:
        """ACK of what was taken back: a no-op with its RECEIPT."""
        late = self._taken_back(client)
        self._settle(client, late[step.b % len(late)], "ack")

    @staticmethod
    def _taken_back(client: Client) -> list[Delivery]:
        rows = [each for consumer in client.consumers if consumer.mode != "auto" for each in consumer.deliveries]
        return [each for each in rows if each.over and each.settle is None and each.transaction is None]

    def _bad_ack(self, client: Client, step: Step) -> None:
        """ACK of what is acknowledged already: ERROR, and everything the client held goes back."""
        self._answered(client)
        done = [
            each
            for consumer in client.consumers
            if consumer.mode != "auto" and consumer.end_asked is None
            for each in consumer.deliveries
            if each.settle == "ack" and each.message.presence is Presence.GONE and each.message.deliveries[-1] is each
        ]
        if client in self.clients and done and step.c // 2 % 2:
            self.model.disconnect(client.name)
            client.expects_error = True
            client.leaving = "bad ack"
            self._settle(client, done[step.b % len(done)], "ack")

    def _wait_for_timeout(self) -> None:
        """Waits until a delivery that is held now has been taken back."""
        held = [each for client in self.clients if not client.leaving for each in self._held(client)]
        if held:
            first = min(held, key=lambda each: each.seen_at)
            self._until(lambda: first.over or self._is_overdue(first), "an ack_timeout passes")
            self.quiet()

    def _is_overdue(self, delivery: Delivery) -> bool:
        return time.monotonic() > delivery.seen_at + self.rules.ack_timeout
