"""The fields of a workload: what each may hold. The load generator has the same; here a mistake is found by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stompica.bench import BenchError

KINDS = ("window", "latency", "idle", "fanin", "queue", "backlog", "queues", "firehose")
TRANSPORTS = ("tcp", "ws")


@dataclass(frozen=True)
class Number:
    """A number in a range."""

    least: float
    most: float | None = None
    whole: bool = True

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.least:g} " + ("on" if self.most is None else f"to {self.most:,.0f}")

    def takes(self, value: Any) -> bool:
        """Whether the value is one."""
        if type(value) is not int and (self.whole or type(value) is not float):
            return False
        return bool(value >= self.least and (self.most is None or value <= self.most))


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        return f"{', '.join(self.words[:-1])} or {self.words[-1]}"

    def takes(self, value: Any) -> bool:
        """Whether the value is one."""
        return value in self.words


@dataclass(frozen=True)
class Choices(Choice):
    """A list of them, each once."""

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        return f"a list of {', '.join(self.words)}"

    def takes(self, value: Any) -> bool:
        """Whether the value is one."""
        listed = isinstance(value, list) and all(isinstance(word, str) for word in value)
        return listed and bool(value) and set(value) <= set(self.words) and len(set(value)) == len(value)


@dataclass(frozen=True)
class Kind:
    """Any value of a type, such as a text."""

    type: type
    allowed: str

    def takes(self, value: Any) -> bool:
        """Whether the value is one."""
        return type(value) is self.type


FIELDS: dict[str, Number | Choice | Kind] = {
    "name": Kind(str, "a text"),
    "group": Kind(str, "a text"),
    "about": Kind(str, "a text"),
    "kind": Choice(KINDS),
    "transports": Choices(TRANSPORTS),
    "publishers": Number(1, 9999),
    "connections": Number(1),
    "subscriptions": Number(1),
    "ids": Choice(("same", "unique")),
    "joint": Kind(bool, "true or false"),
    "pattern": Kind(str, "a text"),
    "spread": Number(0),
    "body": Number(1),
    "tag": Kind(str, "a text of 1 to 8 octets"),
    "ack": Choice(("auto", "client-individual")),
    "prefetch": Number(0),
    "messages": Number(1),
    "window": Number(1),
    "rate": Number(1, 1_000_000),
    "seconds": Number(0.1, 600, whole=False),
    "relay": Kind(bool, "true or false"),
    "min_cpu_s": Number(0, whole=False),
    "wanted": Kind(dict, "a table of per_s, cpu_us and bytes"),
}

SWEPT: dict[str, Number | Choice] = {
    "body": Number(1),
    "subscribers": Number(1),
    "publishers": Number(1, 9999),
    "writers": Number(1, 64),
    "transport": Choice(TRANSPORTS),
    "ack": Choice(("auto", "client-individual")),
    "prefetch": Number(0),
    "rate": Number(1, 1_000_000),
    "window": Number(1),
}
"""What a sweep may vary: fields of a workload, `subscribers` for its `connections`, and the broker's `writers`."""


def check(content: Mapping[str, Any], where: str) -> None:
    """BenchError for a field that there is not, or a value that it does not take; `where` is the file."""
    for name, value in content.items():
        field = FIELDS.get(name)
        if field is None:
            raise BenchError(f"{where}: no field {name!r}; there are {', '.join(FIELDS)} and [sweep]")
        if not field.takes(value):
            raise BenchError(f"{where}: {name} = {value!r}: {name} is {field.allowed}")


def swept(name: str, values: list[Any], where: str) -> list[Any]:
    """The values of a sweep, numbers as numbers. BenchError for what can't be varied so."""
    field = SWEPT.get(name)
    if field is None:
        raise BenchError(f"{where}: {name!r} can't be varied; there are {', '.join(SWEPT)}")
    found = []
    for value in values:
        text = str(value).replace("_", "")
        made = int(text) if isinstance(field, Number) and text.isdecimal() else value
        if not field.takes(made):
            raise BenchError(f"{where}: {name} = {value!r}: {name} is {field.allowed}")
        if made in found:
            raise BenchError(f"{where}: {name} = {value!r} is there twice")
        found.append(made)
    return found
