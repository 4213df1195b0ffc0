"""What the model and the tiny broker know of the broker: settings, dead-letter queues and patterns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """The broker settings that the model depends on; times in seconds, 0 for no ack_timeout."""

    max_deliveries: int = 10
    redelivery_delay: float = 0.1
    ack_timeout: float = 0.0
    slack: float = 0.003
    """Tolerance: the broker counts whole milliseconds and reads its clock once a turn."""

    def delay(self, failures: int) -> float:
        """Returns the redelivery delay after this many failures (from 1)."""
        doubled: float = self.redelivery_delay * 2.0 ** (failures - 1)
        return min(10.0, doubled)


def dead_letter_queue(queue: str) -> str:
    """Returns the queue for those messages of `queue` that failed too often."""
    return "/queue/dlq/" + queue.removeprefix("/queue/")


def matches(pattern: str, queue: str) -> bool:
    """Whether the pattern matches, for the names that the model uses: `>`, or `*` at the end, matches the rest."""
    wanted, found = pattern.split("/"), queue.split("/")
    if wanted[-1] in ("*", ">"):
        return len(found) >= len(wanted) and all(
            want in ("*", have) for want, have in zip(wanted[:-1], found, strict=False)
        )
    return len(wanted) == len(found) and all(want in ("*", have) for want, have in zip(wanted, found, strict=True))
