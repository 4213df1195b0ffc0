"""The fields of a workload and their values. The load generator checks them as well; here errors name the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stompica.bench import BenchError

KINDS = (
    "window", "latency", "idle", "fanin", "queue", "backlog", "queues", "firehose",
    "persist", "persist-rate", "recover",
)  # fmt: skip
TRANSPORTS = ("tcp", "ws")


@dataclass(frozen=True)
class Number:
    """A number in a range."""

    least: float
    most: float | None = None
    whole: bool = True

    @property
    def allowed(self) -> str:
        """The allowed values, for messages."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} " + (
            f"of at least {self.least:g}" if self.most is None else f"from {self.least:g} to {self.most:,.0f}"
        )

    def takes(self, value: Any) -> bool:
        """Whether the value is allowed."""
        if type(value) is not int and (self.whole or type(value) is not float):
            return False
        return bool(value >= self.least and (self.most is None or value <= self.most))


@dataclass(frozen=True)
class Choice:
    """One of several words."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """The allowed values, for messages."""
        return f"{', '.join(self.words[:-1])} or {self.words[-1]}"

    def takes(self, value: Any) -> bool:
        """Whether the value is allowed."""
        return value in self.words


@dataclass(frozen=True)
class Choices(Choice):
    """A list of different words."""

    @property
    def allowed(self) -> str:
        """The allowed values, for messages."""
        return f"a list of {', '.join(self.words)}"

    def takes(self, value: Any) -> bool:
        """Whether the value is allowed."""
        listed = isinstance(value, list) and all(isinstance(word, str) for word in value)
        return listed and bool(value) and set(value) <= set(self.words) and len(set(value)) == len(value)


@dataclass(frozen=True)
class Kind:
    """Any value of a type, such as a string."""

    type: type
    allowed: str

    def takes(self, value: Any) -> bool:
        """Whether the value is allowed."""
        return type(value) is self.type


FIELDS: dict[str, Number | Choice | Kind] = {
    "name": Kind(str, "a string"),
    "group": Kind(str, "a string"),
    "about": Kind(str, "a string"),
    "kind": Choice(KINDS),
    "transports": Choices(TRANSPORTS),
    "publishers": Number(1, 9999),
    "connections": Number(1),
    "subscriptions": Number(1),
    "ids": Choice(("same", "unique")),
    "joint": Kind(bool, "true or false"),
    "pattern": Kind(str, "a string"),
    "spread": Number(0),
    "body": Number(1),
    "tag": Kind(str, "a string of 1 to 8 octets"),
    "ack": Choice(("auto", "client-individual")),
    "prefetch": Number(0),
    "persistent": Kind(bool, "true or false"),
    "messages": Number(1),
    "window": Number(1),
    "rate": Number(1, 1_000_000),
    "seconds": Number(0.1, 600, whole=False),
    "relay": Kind(bool, "true or false"),
    "min_cpu_s": Number(0, whole=False),
    "settings": Kind(dict, "a table of this broker's settings"),
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
    "messages": Number(1),
}
"""What a sweep may vary: fields of a workload (`subscribers` are its `connections`), and the broker's `writers`."""


def check(content: Mapping[str, Any], where: str) -> None:
    """BenchError for an unknown field or a value that is not allowed; `where` is the file."""
    for name, value in content.items():
        field = FIELDS.get(name)
        if field is None:
            raise BenchError(f"{where}: unknown field {name!r}; known fields are {', '.join(FIELDS)} and [sweep]")
        if not field.takes(value):
            raise BenchError(f"{where}: {name} = {value!r}: {name} is {field.allowed}")


def swept(name: str, values: list[Any], where: str) -> list[Any]:
    """The values of a sweep, with numbers converted. BenchError if the field can't be varied, or not like this."""
    field = SWEPT.get(name)
    if field is None:
        raise BenchError(f"{where}: {name!r} can't be varied; these can be: {', '.join(SWEPT)}")
    found = []
    for value in values:
        text = str(value).replace("_", "")
        made = int(text) if isinstance(field, Number) and text.isdecimal() else value
        if not field.takes(made):
            raise BenchError(f"{where}: {name} = {value!r}: {name} is {field.allowed}")
        if made in found:
            raise BenchError(f"{where}: {name} = {value!r} occurs twice")
        found.append(made)
    return found
