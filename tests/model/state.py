"""The model's records of messages, deliveries, consumers and transactions.

A tick is the number of an event. The test reports every frame that is sent or received, so ticks order causes before
effects without a clock. Times (`…_at`, seconds of a monotonic clock) matter for redelivery delays and timeouts only.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tests.model.rules import dead_letter_queue, matches

NEVER = float("inf")


class Violation(AssertionError):
    """The broker did something that no correct broker does."""


class Presence(enum.Enum):
    """Whether the broker still has the message."""

    HERE = "here"
    MAYBE = "perhaps consumed"
    GONE = "gone"


class Return(enum.Enum):
    """Why a message is waiting in its queue."""

    FRESH = "never delivered"
    LOST = "its consumer was lost"
    FAILED = "it failed, or may have failed"


class Outcome(enum.Enum):
    """The state of a transaction."""

    OPEN = "open"
    REQUESTED = "COMMIT was sent"
    UNKNOWN = "COMMIT was sent, its answer never read"
    COMMITTED = "committed"
    UNDONE = "undone"


@dataclass(eq=False)
class Transaction:
    """One transaction, from BEGIN to its end."""

    connection: str
    name: str
    sends: list[Message] = field(default_factory=list)
    settled: list[tuple[Delivery, str]] = field(default_factory=list)
    """Deliveries, each with `ack` or `nack`."""
    maybe_requeued: list[Delivery] = field(default_factory=list)
    """Those of them that were requeued before COMMIT, but perhaps even before their ACK or NACK: COMMIT may fail."""
    requeued: list[Delivery] = field(default_factory=list)
    """Those of them that were certainly requeued between their ACK or NACK and COMMIT: COMMIT must fail."""
    outcome: Outcome = Outcome.OPEN


@dataclass(eq=False)
class Consumer:
    """One subscription to a queue or a pattern of queues."""

    connection: str
    id: str
    pattern: str
    mode: str
    prefetch: int
    subscribed: int
    subscribed_at: float
    live: bool = False
    """Its RECEIPT came."""
    end_requested: int | None = None
    end_at: float = 0.0
    over: bool = False
    """No further MESSAGE may come."""
    closed: dict[str, int] = field(default_factory=dict)
    """By queue: the tick at which all messages that it held are known to be requeued."""
    deliveries: list[Delivery] = field(default_factory=list)
    settles: list[int] = field(default_factory=list)
    """Ticks at which an ACK or NACK was sent that freed a unit of its prefetch."""

    def in_transit(self, queue: str, since: int, until: int) -> bool:
        """Whether a message may have been on its way to or from this lost consumer between these ticks."""
        if self.end_requested is None or not matches(self.pattern, queue):
            return False
        back = self.closed.get(queue)
        return self.end_requested <= until and (back is None or back >= since)

    def __str__(self) -> str:
        return f"{self.connection}/{self.id} ({self.pattern} {self.mode} prefetch {self.prefetch})"


@dataclass(eq=False)
class Delivery:
    """One MESSAGE that was received."""

    message: Message
    consumer: Consumer
    after: int
    """The broker must have sent it after this tick."""
    received: int
    count: int
    not_before: float
    """The broker must have sent it at this time or later."""
    received_at: float
    first: bool
    settle: str | None = None
    settle_requested: int | None = None
    settle_at: float = 0.0
    handle: object = None
    transaction: Transaction | None = None
    doubtful: bool = False
    """Its ACK in a transaction may have come after its ack_timeout, and so have no effect."""
    over: bool = False
    """The consumer no longer holds the message."""


@dataclass(eq=False)
class Message:
    """One SEND."""

    body: str
    queue: str
    publisher: str
    limit: int
    reasons: tuple[str, ...]
    """The possible values of dead-letter-reason when `limit` failures are reached."""
    transaction: Transaction | None = None
    number: int = 0
    """Its position in the order of SENDs."""
    sent: int | None = None
    sent_at: float = 0.0
    placed: int | None = None
    """The tick by which it was certainly in its queue."""
    certain: bool = False
    """It has certainly entered its queue."""
    received: bool = False
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
        """The queue that it is in."""
        return dead_letter_queue(self.queue) if self.dead else self.queue

    @property
    def certainly_dead(self) -> bool:
        """Whether it must be, or has been, moved to the dead-letter queue."""
        return self.dead or self.failures_min >= self.limit

    def entered_before(self, other: Message) -> bool:
        """Whether it is certainly ahead of `other` in their queue."""
        if self.dead or other.dead or self.sent is None or other.sent is None:
            return False
        if self.publisher == other.publisher:
            return self.number < other.number
        return self.placed is not None and self.placed < other.sent


@dataclass(eq=False)
class Command:
    """One frame with a receipt header, from the time it is sent to its RECEIPT."""

    kind: str
    connection: str
    tick: int
    consumer: Consumer | None = None
    message: Message | None = None
    deliveries: list[Delivery] = field(default_factory=list)
    transaction: Transaction | None = None
    doubtful: list[Consumer] = field(default_factory=list)
    """Consumers that are lost if this COMMIT is refused."""

    def __str__(self) -> str:
        return f"{self.kind} of {self.connection}"
