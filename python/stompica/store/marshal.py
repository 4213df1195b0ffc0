"""Reads Ruby's Marshal 4.8, as far as stompserver writes it: numbers, strings, symbols, arrays, hashes, plain objects.

No code is run and no class is looked up: an object is a name and its instance variables. Input may be hostile: its
depth is limited, and a length is compared with what is left before memory is taken for it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

DEPTH_MAX = 64
"""How deeply values may be nested; stompserver's are at most five deep."""

_VERSION = b"\x04\x08"


class MarshalError(ValueError):
    """The octets are no value that this module reads; the message says why and where."""


@dataclass(frozen=True)
class Symbol:
    """A Ruby symbol."""

    name: bytes
    """Its name, without the colon."""


@dataclass(eq=False)
class RubyObject:
    """An object of any class."""

    class_name: bytes
    """The name of its class."""
    variables: dict[bytes, Any] = field(default_factory=dict)
    """Its instance variables by name, `@` included."""


def load(octets: bytes) -> Any:
    """Reads one value: None, bool, int, float, `bytes` for a string, Symbol, list, dict or RubyObject.

    MarshalError if the octets are no such value, or if more follow.
    """
    if octets[:2] != _VERSION:
        raise MarshalError(f"no Ruby Marshal of version 4.8: it begins with {octets[:2].hex() or 'nothing'}")
    reader = _Reader(octets)
    value = reader.value(0)
    if reader.at != len(octets):
        raise MarshalError(f"{len(octets) - reader.at} octets follow the value")
    return value


class _Reader:
    def __init__(self, octets: bytes) -> None:
        self.octets = octets
        self.at = len(_VERSION)
        self.symbols: list[Symbol] = []
        self.objects: list[Any] = []

    def fail(self, what: str) -> MarshalError:
        return MarshalError(f"{what} at octet {self.at}")

    def take(self, count: int) -> bytes:
        if count > len(self.octets) - self.at:
            raise self.fail("it ends too early")
        self.at += count
        return self.octets[self.at - count : self.at]

    def number(self) -> int:
        """A whole number of one to five octets."""
        first = struct.unpack("b", self.take(1))[0]
        if first == 0:
            return 0
        if -4 <= first <= 4:
            octets = self.take(abs(first))
            value = int.from_bytes(octets, "little")
            return value if first > 0 else value - (1 << 8 * len(octets))
        return int(first - 5 if first > 0 else first + 5)

    def length(self, octets_each: int = 1) -> int:
        """A number of octets or of values, each of which takes at least so many octets."""
        count = self.number()
        if count < 0 or count * octets_each > len(self.octets) - self.at:
            raise self.fail(f"a length of {count}, with {len(self.octets) - self.at} octets left,")
        return count

    def symbol(self, depth: int) -> Symbol:
        kind = self.take(1)
        if kind == b"I" and self.octets[self.at : self.at + 1] == b":":  # with an encoding
            symbol = self.symbol(depth)
            self.variables(depth)
            return symbol
        if kind == b":":
            self.symbols.append(Symbol(self.take(self.length())))
            return self.symbols[-1]
        if kind == b";":
            linked: Symbol = self.linked(self.symbols)
            return linked
        raise self.fail(f"{kind!r} instead of a symbol")

    def linked(self, known: list[Any]) -> Any:
        index = self.number()
        if not 0 <= index < len(known):
            raise self.fail(f"a link to value {index} of {len(known)}")
        return known[index]

    def remembered(self, value: Any) -> Any:
        self.objects.append(value)
        return value

    def value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise self.fail("values are nested too deeply")
        kind = self.take(1)
        if kind in b"0TF":
            return {b"0": None, b"T": True, b"F": False}[kind]
        if kind in b":;":
            self.at -= 1
            return self.symbol(depth)
        if kind == b"i":
            return self.number()
        if kind == b"@":
            return self.linked(self.objects)
        if kind == b'"':
            return self.remembered(self.take(self.length()))
        if kind == b"I":
            return self.with_variables(depth)
        return self.compound(kind, depth)

    def with_variables(self, depth: int) -> Any:
        """A string with its encoding, or another value with instance variables."""
        value = self.value(depth + 1)
        self.variables(depth)
        return value

    def variables(self, depth: int) -> dict[bytes, Any]:
        found = {}
        if depth > DEPTH_MAX:
            raise self.fail("values are nested too deeply")
        for _ in range(self.length(2)):
            name = self.symbol(depth + 1).name
            found[name] = self.value(depth + 1)
        return found

    def compound(self, kind: bytes, depth: int) -> Any:
        if kind == b"[":
            items: list[Any] = self.remembered([])
            for _ in range(self.length()):
                items.append(self.value(depth + 1))
            return items
        if kind in b"{}":
            return self.hash(kind, depth)
        if kind == b"o":
            made = self.remembered(RubyObject(self.symbol(depth + 1).name))
            made.variables = self.variables(depth)
            return made
        if kind == b"C":  # a subclass of a string, an array or a hash
            self.symbol(depth + 1)
            return self.value(depth + 1)
        if kind == b"f":
            return self.remembered(self.float())
        if kind == b"l":
            sign = self.take(1)
            size = self.length(2)
            value = int.from_bytes(self.take(2 * size), "little")
            return self.remembered(-value if sign == b"-" else value)
        self.at -= 1
        raise self.fail(f"a value of type {kind!r}, which stompserver does not write,")

    def hash(self, kind: bytes, depth: int) -> dict[Any, Any]:
        pairs: dict[Any, Any] = self.remembered({})
        for _ in range(self.length(2)):
            key = self.value(depth + 1)
            if isinstance(key, (list, dict)):
                raise self.fail("a key that is no simple value")
            pairs[key] = self.value(depth + 1)
        if kind == b"}":
            self.value(depth + 1)  # the default
        return pairs

    def float(self) -> float:
        text = self.take(self.length())
        try:
            return float(text.split(b"\0")[0])
        except ValueError:
            raise self.fail(f"no number: {text[:20]!r}") from None
