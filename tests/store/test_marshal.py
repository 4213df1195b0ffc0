"""The reader of Ruby's Marshal: what stompserver writes, and what an attacker may write."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from stompica.store.marshal import MarshalError, RubyObject, Symbol, load

SAMPLE = Path(__file__).parent / "stompserver" / "sample"


@pytest.mark.parametrize(
    ("octets", "value"),
    [
        (b"0", None),
        (b"T", True),
        (b"F", False),
        (b"i\x00", 0),
        (b"i\x06", 1),
        (b"i\xfa", -1),
        (b"i\x7f", 122),
        (b"i\x80", -123),
        (b"i\x01\xff", 255),
        (b"i\xff\x00", -256),
        (b"i\x04\xff\xff\xff\x3f", (1 << 30) - 1),
        (b"l+\x07\x00\x00\x00\x40", 1 << 30),
        (b"l-\x07\x00\x00\x00\x40", -(1 << 30)),
        (b"f\x081.5", 1.5),
        (b'"\x06x', b"x"),
        (b'I"\x06x\x06:\x06ET', b"x"),
        (b":\x06x", Symbol(b"x")),
        (b"[\x07i\x06i\x07", [1, 2]),
        (b'{\x06"\x06ai\x06', {b"a": 1}),
        (b'}\x06"\x06ai\x06i\x00', {b"a": 1}),
        (b'[\x07"\x06a@\x06', [b"a", b"a"]),
        (b"[\x07:\x06a;\x00", [Symbol(b"a"), Symbol(b"a")]),
        (b'C:\x06S"\x06x', b"x"),
    ],
)
def test_values_are_read(octets: bytes, value: Any) -> None:
    assert load(b"\x04\x08" + octets) == value


def test_an_object_is_its_name_and_its_variables() -> None:
    found = load(b"\x04\x08o:\x06A\x07:\x07@xi\x06:\x07@y@\x00")
    assert isinstance(found, RubyObject) and found.class_name == b"A"
    assert found.variables == {b"@x": 1, b"@y": found}


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (b"", "no Ruby Marshal"),
        (b"\x04\x09i\x00", "no Ruby Marshal"),
        (b"\x04\x08", "it ends too early"),
        (b"\x04\x08i\x00i\x00", "2 octets follow"),
        (b'\x04\x08"\x04\xff\xff\xff\x7f', "a length of 2147483647"),
        (b'\x04\x08"\xfa', "a length of -1"),
        (b"\x04\x08[\x04\xff\xff\xff\x7f0", "a length of"),
        (b"\x04\x08{\x04\xff\xff\xff\x7f0", "a length of"),
        (b"\x04\x08@\x06", "a link to value 1 of 0"),
        (b"\x04\x08;\xfa", "a link to value -1 of 0"),
        (b"\x04\x08{\x06[\x000", "no simple value"),
        (b"\x04\x08f\x06x", "no number"),
        (b"\x04\x08u:\x06A\x06x", "type b'u'"),
        (b"\x04\x08o0", "instead of a symbol"),
        (b"\x04\x08" + b"[\x06" * 100_000, "nested too deeply"),
        (b"\x04\x08" + b"I" * 100_000, "nested too deeply"),
        (b"\x04\x08" + b"I:\x06a\x06" * 100_000, "nested too deeply"),
        (b"\x04\x08" + b"oI:\x06a\x06:\x06b" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_such_value_is_refused(octets: bytes, why: str) -> None:
    with pytest.raises(MarshalError, match=why):
        load(octets)


def test_any_octets_are_a_value_or_an_error() -> None:
    dice = random.Random(1)
    valid = [path.read_bytes()[16:] for path in SAMPLE.glob("_*/*")] + [(SAMPLE / "qinfo").read_bytes()]
    for _ in range(5_000):
        octets = bytearray(dice.choice(valid))
        for _ in range(dice.randint(1, 5)):
            octets[dice.randrange(2, len(octets))] = dice.choice([0, 6, 255, *b'0TFifl":;[{}oIC@', dice.randrange(256)])
        with contextlib.suppress(MarshalError):
            load(bytes(octets[: dice.randint(2, len(octets))]))
