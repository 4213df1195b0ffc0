"""Executes random steps against a broker over real connections, and checks every frame with the model."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tests.model.exchange import Client, Exchange
from tests.model.links import Fence, WebSocketLink
from tests.model.model import describe
from tests.model.rules import Rules
from tests.model.state import Delivery, Outcome, Presence, Transaction
from tests.model.steps import Step

CLIENTS_MAX = 5


class Runner(Exchange):
    """One run: new queues, new clients, one model."""

    def __init__(self, port: int, run: str, rules: Rules, fence: Fence, *, websockets: bool = True) -> None:
        super().__init__(port, rules)
        self.fence = fence
        self.websockets = websockets
        # A 1.1 ACK names the message, not the delivery: after a timeout it may settle the next delivery.
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

    def run(self, steps: list[Step], seed: int) -> None:
        """Executes all steps, then the end."""
        try:
            for step in steps:
                self.step(step)
            self.finish(seed)
        finally:
            self.discard()

    def step(self, step: Step) -> None:
        """Reads what has come, then executes one step; if its `c` is odd, waits for the RECEIPTs."""
        with self.reporting():
            self.receive(0)
            client = self._step(step)
            if client is not None and step.c & 1:
                self.await_receipts(client)

    def finish(self, seed: int) -> None:
        """Closes all clients, then drains the queues with a new one: no message may be left."""
        with self.reporting():
            self._end(random.Random(seed))

    def _step(self, step: Step) -> Client | None:
        if step.kind == "connect":
            return self._connect(step)
        if step.kind == "await":
            self.await_deliveries()
            return None
        if step.kind == "timeout":
            self._wait_for_timeout()
            return None
        if step.kind == "quiesce":
            self.quiesce()
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
        """Whether the step would have any effect for this client, so that few steps are wasted."""
        if kind in ("ack", "tx_ack", "nack", "tx_nack"):
            return bool(self._choices(client, kind))
        if kind in ("commit", "abort", "tx_send", "commit_and_reset"):
            return bool(self._open(client))
        if kind == "unsubscribe":
            return any(each.end_requested is None for each in client.consumers)
        if kind == "late_ack":
            return bool(self._requeued(client))
        return True

    def _end(self, chance: random.Random) -> None:
        if chance.random() < 0.3:
            self.await_deliveries()
        for client in [client for client in self.clients if not client.leaving]:
            step = Step("end", 0, 0, 0)
            chance.choice([self._disconnect, self._reset, self._reset, self._half_close])(client, step)
            self.receive(0)
        self.wait_until(lambda: not self.clients, "not every client was closed")
        if chance.random() < 0.7:
            self.quiesce()
        self.note("-- drain")
        drain = self.join("1.2", websocket=False)
        drain.drains = True
        for pattern in self.everything:
            self.subscribe(drain, pattern, "client-individual", chance.choice([0, 1, 5]))
        self.await_deliveries()
        homes = {message.home for message in self.model.messages.values()} | set(self.queues)
        for queue in sorted(homes):  # behind any message that is left
            self.send(drain, queue)
        self.await_deliveries()
        self.quiesce()
        self.await_deliveries()
        self.model.resolve_unknown()
        self.await_deliveries()
        self.model.finish()

    def await_deliveries(self) -> None:
        """Waits until all RECEIPTs and all messages that must be delivered have come."""
        for client in list(self.clients):
            self.await_receipts(client)
        self.wait_until(
            lambda: not self.model.deliverable(), lambda: f"not delivered: {describe(self.model.deliverable())}"
        )
        for client in list(self.clients):
            self.await_receipts(client)
        if self.model.deliverable():
            self.await_deliveries()

    def quiesce(self) -> None:
        """Waits until no mail between shards is left: then all that lost consumers held has been requeued."""
        self.note("-- quiesce")
        self.fence.wait()
        self.receive(0)
        self.model.quiescent()

    def _connect(self, step: Step) -> Client | None:
        if len(self.clients) >= CLIENTS_MAX:
            return None
        return self.join(self.versions[step.a % len(self.versions)], websocket=self.websockets and step.b % 4 == 0)

    def _subscribe(self, client: Client, step: Step) -> None:
        modes = ["auto", "client", "client", "client-individual", "client-individual", "client-individual"]
        mode = modes[step.c // 2 % 6]
        if client.version == "1.0" and mode == "client-individual":
            mode = "client"
        self.subscribe(client, self.patterns[step.b % len(self.patterns)], mode, 1 + step.c // 12 % 5)

    def _send(self, client: Client, step: Step) -> None:
        for _ in range(1 + step.c // 2 % 5):
            limit = 1 + step.c // 80 % 2 if step.c // 16 % 5 == 0 else None
            self.send(client, self.queues[step.b % len(self.queues)], max_exceptions=limit)

    def _held(self, client: Client, transaction: Transaction | None = None) -> list[Delivery]:
        """Returns what this client may settle, on its own or in a transaction."""
        found = []
        for consumer in client.consumers:
            if consumer.end_requested is not None:
                continue
            for delivery in consumer.deliveries:
                if delivery.over or delivery.settle is not None:
                    continue
                if delivery.transaction is None:
                    found.append(delivery)
                elif consumer.mode == "client" and delivery.transaction is not transaction:
                    break  # whether a cumulative ACK covers a delivery in an open transaction is not specified
        return found

    def _ack(self, client: Client, step: Step) -> None:
        for _ in range(1 + step.c // 2 % 2):
            held = self._choices(client, "ack")
            if held:
                self.settle(client, held[step.b % len(held)], "ack")

    def _nack(self, client: Client, step: Step) -> None:
        held = self._choices(client, "nack")
        chosen = held[step.b % len(held)]
        if step.c // 2 % 2:  # so that some messages fail often enough to become dead letters
            chosen = max(held, key=lambda each: each.message.failures_max)
        self.settle(client, chosen, "nack")

    def _choices(self, client: Client, kind: str) -> list[Delivery]:
        """Returns what an `ack`, `nack`, `tx_ack` or `tx_nack` step may settle."""
        transaction = next(iter(self._open(client)), None) if kind.startswith("tx_") else None
        held = self._held(client, transaction)
        if kind.endswith("nack"):
            return [each for each in held if client.version != "1.0" and self._may_fail(each)]
        return held

    def _may_fail(self, delivery: Delivery) -> bool:
        """Never for dead letters: a message that fails in a dead-letter queue is dropped."""
        return not any(each.message.dead for each in self.model.covered(delivery))

    def _open(self, client: Client) -> list[Transaction]:
        return [each for each in client.transactions if each.outcome is Outcome.OPEN]

    def _begin(self, client: Client, step: Step) -> None:
        name = f"t{client.number()}"
        command = self.model.begin(client.name, name)
        assert command.transaction is not None
        client.transactions.append(command.transaction)
        self.send_command(client, command, "BEGIN", ("transaction", name))

    def _tx_send(self, client: Client, step: Step) -> None:
        for transaction in self._open(client)[:1]:
            for extra in range(1 + step.c // 2 % 3):
                self.send(client, self.queues[(step.b + extra * (step.c // 8 % 2)) % 3], transaction)

    def _tx_ack(self, client: Client, step: Step) -> None:
        self._tx_settle(client, step, "ack")

    def _tx_nack(self, client: Client, step: Step) -> None:
        self._tx_settle(client, step, "nack")

    def _tx_settle(self, client: Client, step: Step, kind: str) -> None:
        if not self._open(client):
            self._begin(client, step)
        held = self._choices(client, f"tx_{kind}")
        self.settle(client, held[step.b % len(held)], kind, self._open(client)[0])

    def _commit(self, client: Client, step: Step) -> None:
        opened = self._open(client)
        transaction = opened[step.b % len(opened)]
        command = self.model.commit(transaction)
        self.send_command(client, command, "COMMIT", ("transaction", transaction.name))
        may_time_out = transaction.settled and self.rules.ack_timeout > 0
        if command.doubtful or transaction.requeued or may_time_out:  # COMMIT may be refused: await the answer
            self.wait_until(
                lambda: client not in self.clients or (not client.leaving and not client.pending),
                lambda: f"no answer to {command}",
            )

    def _abort(self, client: Client, step: Step) -> None:
        opened = self._open(client)
        transaction = opened[step.b % len(opened)]
        self.send_command(client, self.model.abort(transaction), "ABORT", ("transaction", transaction.name))

    def _unsubscribe(self, client: Client, step: Step) -> None:
        live = [each for each in client.consumers if each.end_requested is None]
        consumer = live[step.b % len(live)]
        self.send_command(client, self.model.unsubscribe(consumer), "UNSUBSCRIBE", ("id", consumer.id))

    def _disconnect(self, client: Client, step: Step) -> None:
        self.send_command(client, self.model.disconnect(client.name), "DISCONNECT")
        client.leaving = "disconnect"

    def _half_close(self, client: Client, step: Step) -> None:
        if isinstance(client.link, WebSocketLink):
            self._disconnect(client, step)
            return
        self.model.disconnect(client.name)
        self.note(f"{client} half-closes")
        client.leaving = "half_close"
        client.link.half_close()

    def _reset(self, client: Client, step: Step) -> None:
        self.note(f"{client} resets")
        client.link.reset()
        self.forget(client, all_read=False)

    def _commit_and_reset(self, client: Client, step: Step) -> None:
        transaction = self._open(client)[0]
        self.send_command(client, self.model.commit(transaction), "COMMIT", ("transaction", transaction.name))
        self._reset(client, step)

    def _late_ack(self, client: Client, step: Step) -> None:
        """ACK of a delivery that was requeued: it has no effect, but gets its RECEIPT."""
        late = self._requeued(client)
        self.settle(client, late[step.b % len(late)], "ack")

    @staticmethod
    def _requeued(client: Client) -> list[Delivery]:
        rows = [each for consumer in client.consumers if consumer.mode != "auto" for each in consumer.deliveries]
        return [each for each in rows if each.over and each.settle is None and each.transaction is None]

    def _bad_ack(self, client: Client, step: Step) -> None:
        """ACK of a delivery that is acknowledged already: ERROR, and all that the client held is requeued."""
        self.await_receipts(client)
        done = [
            each
            for consumer in client.consumers
            if consumer.mode != "auto" and consumer.end_requested is None
            for each in consumer.deliveries
            if each.settle == "ack" and each.message.presence is Presence.GONE and each.message.deliveries[-1] is each
        ]
        if client in self.clients and done and step.c // 2 % 2:
            self.model.disconnect(client.name)
            client.expects_error = True
            client.leaving = "bad ack"
            self.settle(client, done[step.b % len(done)], "ack")

    def _wait_for_timeout(self) -> None:
        """Waits until the ack_timeout of a delivery that is held now has passed."""
        held = [each for client in self.clients if not client.leaving for each in self._held(client)]
        if held:
            first = min(held, key=lambda each: each.received_at)
            self.wait_until(lambda: first.over or self._is_overdue(first), "an ack_timeout did not pass")
            self.await_deliveries()

    def _is_overdue(self, delivery: Delivery) -> bool:
        return time.monotonic() > delivery.received_at + self.rules.ack_timeout
