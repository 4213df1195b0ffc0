"""What a store may and must have after its broker was killed: the model of `test_store_kill.py`.

Clients tell what they send before they send it, and each RECEIPT when it has come. After a restart, everything that
waits is compared: what a RECEIPT has confirmed must be so, and what no RECEIPT has confirmed may be so.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

from tests.support.parser import Frame

Key = tuple[str, str]
"""A place (a queue or a durable subscription), and the name of a message, with which its body begins."""


class Ack(Enum):
    """What is known of the acknowledgement of a message."""

    NONE = 0
    SENT = 1
    CONFIRMED = 2


@dataclass
class Transaction:
    """A COMMIT that was sent: the messages that it sends, and those that it acknowledges."""

    sends: list[Key]
    acks: list[Key]
    is_confirmed: bool = False


@dataclass
class Entry:
    """A message in a place."""

    publisher: str
    number: int
    size: int
    is_persistent: bool = True
    is_due: bool = False
    """Whether a RECEIPT has confirmed that it is stored."""
    is_plain: bool = True
    """Whether it was sent by a SEND alone, not by a COMMIT, or was there after a restart.

    A COMMIT is stored by another thread than the deliveries of its messages, so it has no order with these.
    """
    ack: Ack = Ack.NONE
    by: Transaction | None = None
    """The transaction that acknowledges it."""
    seen: list[tuple[int, int]] = field(default_factory=list)
    """Its deliveries: when they came on the model's clock, and which they were."""


@dataclass
class Found:
    """A message that waits after a restart."""

    key: Key
    frame: Frame
    is_dead: bool = False
    """Whether it waits in the dead-letter queue of its place."""


def body(name: str, size: int) -> bytes:
    """The body of the message of this name."""
    return f"{name} ".ljust(size, ".").encode()


class Model:
    """All messages that were sent; every method may be called from any thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.entries: dict[Key, Entry] = {}
        self.gone: set[Key] = set()
        self.transactions: list[Transaction] = []
        self.last_values: dict[str, list[tuple[str | None, bool]]] = defaultdict(lambda: [(None, True)])
        """The values that each topic may have, oldest first, and whether each has been confirmed; `None`: removed."""
        self.stored_at: dict[str, int] = {}
        """When the last confirmed SEND to each place was sent: its home has stored all earlier deliveries with it."""
        self._clock = itertools.count(1)

    # -- what clients do ---------------------------------------------------------------------------------------

    def now(self) -> int:
        """The next time of the model's clock."""
        return next(self._clock)

    def send(self, keys: list[Key], entry: Entry) -> None:
        """A message is about to be sent to these places."""
        with self.lock:
            for key in keys:
                assert key not in self.entries and key not in self.gone
                self.entries[key] = Entry(**{**vars(entry), "seen": []})

    def confirm_send(self, keys: list[Key], sent_at: int) -> None:
        """The RECEIPT of a SEND has come."""
        with self.lock:
            for key in keys:
                entry = self.entries.get(key)
                if entry is not None and entry.is_persistent:
                    entry.is_due = True
                    self.stored_at[key[0]] = max(self.stored_at.get(key[0], 0), sent_at)

    def deliver(self, key: Key, frame: Frame) -> None:
        """A message was delivered."""
        with self.lock:
            entry = self.expected(key, frame)
            assert entry.ack is not Ack.CONFIRMED, f"delivered after the RECEIPT of its ACK: {frame}"
            entry.seen.append((self.now(), count_of(frame)))

    def acknowledge(self, keys: list[Key], by: Transaction | None = None) -> None:
        """These messages are about to be acknowledged."""
        with self.lock:
            for key in keys:
                self.entries[key].ack, self.entries[key].by = Ack.SENT, by

    def confirm_ack(self, keys: list[Key]) -> None:
        """The RECEIPT of an ACK has come."""
        with self.lock:
            for key in keys:
                self.entries[key].ack = Ack.CONFIRMED

    def confirm_commit(self, transaction: Transaction) -> None:
        """The RECEIPT of a COMMIT has come."""
        with self.lock:
            transaction.is_confirmed = True
            self.confirm_ack(transaction.acks)
            for key in transaction.sends:
                self.entries[key].is_due = self.entries[key].is_persistent

    def waiting(self, place: str) -> int:
        """The number of messages of a place that nobody has acknowledged."""
        with self.lock:
            return sum(key[0] == place and entry.ack is Ack.NONE for key, entry in list(self.entries.items()))

    def expected(self, key: Key, frame: Frame) -> Entry:
        """The entry of a message that has come, which must have been sent just so."""
        entry = self.entries.get(key)
        assert entry is not None, f"never sent, or gone before: {key}, {str(frame)[:500]}"
        assert frame.body == body(key[1], entry.size), f"{key} has another body: {str(frame)[:500]}"
        return entry

    # -- what a restart leaves ---------------------------------------------------------------------------------

    def compare(self, found: list[Found]) -> list[str]:
        """What is wrong with all that waits after a restart. Then the model knows nothing else of it."""
        with self.lock:
            wrong = [*self._duplicates(found)]
            present = {one.key: one for one in found}
            for key, one in present.items():
                wrong += self._misplaced(key, one)
            for key, entry in self.entries.items():
                if entry.is_due and entry.ack is Ack.NONE and key not in present:
                    wrong.append(f"lost after its RECEIPT: {key} {entry}")
            wrong += self._torn(present)
            wrong += self._out_of_order(found)
            wrong += self._holes(present)
            self._accept(present)
            return wrong

    def _duplicates(self, found: list[Found]) -> list[str]:
        keys = [one.key for one in found]
        return [f"twice: {key}" for key in set(keys) if keys.count(key) > 1] if len(set(keys)) < len(keys) else []

    def _misplaced(self, key: Key, one: Found) -> list[str]:
        entry = self.expected(key, one.frame)
        stored_at = self.stored_at.get(key[0], 0)
        before = max((count for at, count in entry.seen if at < stored_at), default=0)
        wrong = []
        if entry.ack is Ack.CONFIRMED:
            wrong.append(f"came back after the RECEIPT of its ACK: {key} {entry}")
        if not entry.is_persistent:
            wrong.append(f"was not to be stored: {key} {entry}")
        if entry.is_plain and not one.is_dead and count_of(one.frame) <= before:
            wrong.append(f"is not marked as delivered {before} times: {key} {entry} {str(one.frame)[:300]}")
        return wrong

    def _torn(self, present: dict[Key, Found]) -> list[str]:
        """Transactions of which a part has taken effect."""
        wrong = []
        for transaction in self.transactions:
            sent = [key for key in transaction.sends if key in present]
            missing = [key for key in transaction.sends if key not in present and self.entries[key].ack is Ack.NONE]
            own = [key for key in transaction.acks if self.entries[key].by is transaction]
            acked = [key for key in own if key not in present and self.entries[key].is_due]
            kept = [key for key in own if key in present]
            if (sent or acked) and (missing or kept):
                wrong.append(f"torn: {sent=} {acked=} {missing=} {kept=} {transaction.is_confirmed=}")
        return wrong

    def _out_of_order(self, found: list[Found]) -> list[str]:
        last: dict[tuple[str, str], Found] = {}
        wrong = []
        for one in found:
            if not one.is_dead:
                entry = self.entries[one.key]
                before = last.get((one.key[0], entry.publisher))
                if before is not None and self.entries[before.key].number > entry.number:
                    wrong.append(f"{one.key} comes after {before.key}")
                last[one.key[0], entry.publisher] = one
        return wrong

    def _holes(self, present: dict[Key, Found]) -> list[str]:
        """A publisher's SENDs to one place are stored in their order: none is missing before one that is there."""
        last: dict[tuple[str, str], int] = {}
        plain = {key: entry for key, entry in self.entries.items() if entry.is_plain and entry.is_persistent}
        for key in present:
            if key in plain:
                line = key[0], plain[key].publisher
                last[line] = max(last.get(line, 0), plain[key].number)
        return [
            f"missing before a later one: {key} {entry}"
            for key, entry in plain.items()
            if key not in present and entry.ack is Ack.NONE and entry.number < last.get((key[0], entry.publisher), 0)
        ]

    def _accept(self, present: dict[Key, Found]) -> None:
        self.gone |= {key for key in self.entries if key not in present}
        self.entries = {key: self.entries[key] for key in present}
        for key, entry in self.entries.items():
            entry.is_due, entry.is_plain, entry.ack, entry.by = True, True, Ack.NONE, None
            entry.seen = [(self.now(), count_of(present[key].frame))]
        self.transactions.clear()

    def compare_last_values(self, found: dict[str, str]) -> list[str]:
        """What is wrong with the retained values after a restart; then the model knows nothing else of them."""
        wrong = [f"a value that was never set: {topic}" for topic in found if topic not in self.last_values]
        for topic, values in self.last_values.items():
            newest = max(at for at, (_, is_confirmed) in enumerate(values) if is_confirmed)
            possible = [value for value, _ in values[newest:]]
            if found.get(topic) not in possible:
                wrong.append(f"{topic} has {found.get(topic)}, not one of {possible}")
            values[:] = [(found.get(topic), True)]
        return wrong


def count_of(frame: Frame) -> int:
    """Which delivery of its message this is; the two headers that tell must agree."""
    count = int(frame.header("delivery-count") or 1)
    if "dead-letter-reason" not in frame:
        assert (count > 1) == (frame.header("redelivered") == "true"), frame
    return count
