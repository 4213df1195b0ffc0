"""What the model writes down about messages, deliveries, consumers and transactions.

Ticks are the harness's own event numbers: it sees every frame that goes out and comes in, so they order causes before
effects without any clock. Times (`…_at`, seconds of a monotonic clock) matter for redelivery delays and timeouts only.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

NEVER = float("inf")


class Violation(AssertionError):
    """The broker did what no correct broker does."""


@dataclass(frozen=True)
class Rules:
    """The settings of the broker that the model has to know; times in seconds, 0 for no ack_timeout."""

    max_deliveries: int = 10
    redelivery_delay: float = 0.1
    ack_timeout: float = 0.0
    slack: float = 0.003
    """The broker counts whole milliseconds and reads its clock once a turn."""

    def delay(self, failures: int) -> float:
        """The pause after this many failures (from 1)."""
        doubled: float = self.redelivery_delay * 2.0 ** (failures - 1)
        return min(10.0, doubled)


class Presence(enum.Enum):
    """Whether the broker still has the message."""

    HERE = "here"
    MAYBE = "perhaps consumed"
    GONE = "gone"


class Return(enum.Enum):
    """How a message that waits came to wait."""

    FRESH = "never delivered"
    LOST = "its consumer was lost"
    FAILED = "it failed, or perhaps failed"


class Outcome(enum.Enum):
    """Where a transaction stands."""

    OPEN = "open"
    ASKED = "COMMIT was sent"
    UNKNOWN = "COMMIT was sent, its answer never read"
    COMMITTED = "committed"
    UNDONE = "undone"


@dataclass(eq=False)
class Transaction:
    """One BEGIN to its end."""

    connection: str
    name: str
    outcome: Outcome = Outcome.OPEN
    sends: list[Message] = field(default_factory=list)
    settled: list[tuple[Delivery, str]] = field(default_factory=list)
    """Deliveries with `ack` or `nack`."""
    gone: list[Delivery] = field(default_factory=list)
    """Those of them that were taken back before COMMIT, though maybe before their ACK or NACK, too: COMMIT may fail."""
    lost: list[Delivery] = field(default_factory=list)
    """Those of them that were certainly taken back in between: COMMIT must fail."""


@dataclass(eq=False)
class Consumer:
    """One subscription to a queue or a pattern of queues."""

    connection: str
    id: str
    pattern: str
    mode: str
    prefetch: int
    asked: int
    asked_at: float
    live: bool = False
    """Its RECEIPT came."""
    end_asked: int | None = None
    end_at: float = 0.0
    over: bool = False
    """No MESSAGE may come any more."""
    closed: dict[str, int] = field(default_factory=dict)
    """By queue: the tick at which all it held is known to be back."""
    deliveries: list[Delivery] = field(default_factory=list)
    settles: list[int] = field(default_factory=list)
    """Ticks at which an ACK or NACK left that freed one of its places."""

    def may_bounce(self, queue: str, since: int, until: int) -> bool:
        """Whether, between these ticks, a message may have been on its way to or back from this lost consumer."""
        if self.end_asked is None or not matches(self.pattern, queue):
            return False
        back = self.closed.get(queue)
        return self.end_asked <= until and (back is None or back >= since)

    def __str__(self) -> str:
        return f"{self.connection}/{self.id} ({self.pattern} {self.mode} prefetch {self.prefetch})"


@dataclass(eq=False)
class Delivery:
    """One MESSAGE that arrived."""

    message: Message
    consumer: Consumer
    after: int
    """A tick at or before which the broker cannot have sent it."""
    seen: int
    count: int
    not_before: float
    """The same as a time."""
    seen_at: float
    first: bool
    handle: object = None
    settle: str | None = None
    settle_asked: int | None = None
    settle_at: float = 0.0
    transaction: Transaction | None = None
    doubtful: bool = False
    """Its ACK in a transaction may have come after its ack_timeout, and so mean nothing."""
    over: bool = False
    """It holds the message no longer."""


@dataclass(eq=False)
class Message:
    """One SEND."""

    body: str
    queue: str
    publisher: str
    limit: int
    reasons: tuple[str, ...]
    """The dead-letter-reason it gets when `limit` failures are reached, one of these."""
    transaction: Transaction | None = None
    number: int = 0
    """Rank among its publisher's messages."""
    sent: int | None = None
    sent_at: float = 0.0
    placed: int | None = None
    """The tick by which it was in the queue for certain."""
    certain: bool = False
    """It is known to have entered the queue."""
    seen: bool = False
    presence: Presence = Presence.HERE
    why: str = ""
    holder: Delivery | None = None
    deliveries: list[Delivery] = field(default_factory=list)
    failures_min: int = 0
    failures_max: int = 0
    returned: Return = Return.FRESH
    lost_by: Consumer | None = None
    available_at: float = 0.0
    """No delivery is due before this time."""
    in_doubt: Transaction | None = None
    """A transaction of unknown outcome acknowledged it."""
    dead: bool = False

    @property
    def home(self) -> str:
        """The queue it is in."""
        return dead_letter_queue(self.queue) if self.dead else self.queue

    @property
    def certainly_dead(self) -> bool:
        """It must go, or has gone, to the dead-letter queue."""
        return self.dead or self.failures_min >= self.limit

    def entered_before(self, other: Message) -> bool:
        """Whether it stands before `other` in their queue for certain."""
        if self.dead or other.dead or self.sent is None or other.sent is None:
            return False
        if self.publisher == other.publisher:
            return self.number < other.number
        return self.placed is not None and self.placed < other.sent


@dataclass(eq=False)
class Command:
    """One frame with a receipt, from its leaving to its RECEIPT."""

    kind: str
    connection: str
    tick: int
    consumer: Consumer | None = None
    message: Message | None = None
    deliveries: list[Delivery] = field(default_factory=list)
    transaction: Transaction | None = None
    doubtful: list[Consumer] = field(default_factory=list)
    """Consumers that are gone if this COMMIT is refused."""

    def __str__(self) -> str:
        return f"{self.kind} of {self.connection}"


def dead_letter_queue(queue: str) -> str:
    """Where the messages of a queue go that failed too often."""
    return "/queue/dlq/" + queue.removeprefix("/queue/")


def matches(pattern: str, queue: str) -> bool:
    """A plain reading of the wildcard rules, as far as the model's names go: `*` at the end and `>` take the rest."""
    wanted, found = pattern.split("/"), queue.split("/")
    if wanted[-1] in ("*", ">"):
        return len(found) >= len(wanted) and all(
            want in ("*", have) for want, have in zip(wanted[:-1], found, strict=False)
        )
    return len(wanted) == len(found) and all(want in ("*", have) for want, have in zip(wanted, found, strict=True))
