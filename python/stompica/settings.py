"""Sources of settings: a file, the environment, the command line and keyword arguments.

Each source becomes a list of (key, value, source), lowest priority first; `_core` knows the settings and checks them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

from stompica import _core
from stompica.errors import ConfigError
from stompica.logs import one_line

Given: TypeAlias = tuple[str, str, str]
"""Key, value and source of one setting, as the user wrote it."""

SettingValue: TypeAlias = str | int | float | bool | timedelta | Sequence[str | int] | os.PathLike[str] | None
"""Types that a keyword argument accepts; None leaves the setting at its default."""

ENVIRONMENT_PREFIX = "STOMPICA_"
_SHOWN = 80

# Variables with the prefix that are not settings: those of the project's own tests and benchmarks, and those that
# Kubernetes and container links set in every container next to a service called "stompica".
_NOT_SETTINGS = re.compile(r"STOMPICA_(TEST_.*|BENCH_.*|SERVICE_.*|NAME|ENV_.*|PORT_\d+_(TCP|UDP).*)")


def from_environment(environment: Mapping[str, str]) -> list[Given]:
    """Returns the settings in `STOMPICA_…` variables, by name. A service link (`STOMPICA_PORT=tcp://…`) is not one."""
    given = []
    for name in sorted(environment):
        value = environment[name]
        if not name.startswith(ENVIRONMENT_PREFIX) or _NOT_SETTINGS.fullmatch(name):
            continue
        if name == "STOMPICA_PORT" and value.startswith(("tcp://", "udp://")):
            continue
        given.append((name[len(ENVIRONMENT_PREFIX) :], value, name))
    return given


def from_keywords(settings: Mapping[str, SettingValue]) -> list[Given]:
    """Converts keyword arguments of `Broker` to strings."""
    return [(key, _text(value), "argument") for key, value in settings.items() if value is not None]


def _text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, timedelta):
        # With all decimals: less than a millisecond is refused instead of being rounded to 0.
        return f"{Decimal(value // timedelta(microseconds=1)) / 1000:f}ms"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    # Bytes would be taken for a sequence of numbers, a mapping for the sequence of its keys.
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, memoryview, Mapping)):
        return ",".join(str(item) for item in value)
    raise TypeError(f"a setting is a string, a number, a bool, a timedelta or a sequence, not {type(value).__name__}")


def read_file(name: str, folder: str = ".", source: str = "command line") -> list[Given]:
    """Reads the settings of a TOML file, or of stompserver's YAML; a relative name is resolved against `folder`.

    `source` is where the name was given. ConfigError if the file can't be read or has an unknown setting.
    """
    _refuse_undecodable([("config", name, source)])
    try:
        text = (Path(folder) / name).read_text(encoding="utf-8")
    except OSError as error:
        raise _unreadable(name, source, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise _unreadable(name, source, "not UTF-8") from None
    return _core.parse_file(name, text)


def collect(given: Sequence[Given], *, again: bool = False) -> list[Given]:
    """Puts the settings of the file that `given` names by `config`, if any, before `given`: lowest priority first.

    A file that is read `again` has to be a regular one: a pipe would be waited for, while no signal is handled.
    """
    _refuse_undecodable(given)
    file = last(given, "config")
    if file is None:
        return list(given)
    folder = last(given, "working_dir")
    # Refuses an empty name, which would be the folder itself, and characters that a name can't have.
    _core.check([file, folder] if folder else [file])
    place = folder[1] if folder else "."
    if again and Path(place, file[1]).exists() and not Path(place, file[1]).is_file():
        raise _unreadable(file[1], file[2], "it is no regular file, so it can be read only once")
    return [*read_file(file[1], place, source=file[2]), *given]


def last(given: Sequence[Given], key: str) -> Given | None:
    """The entry in force for `key`, which has no alias, with its value stripped; None if it is not given."""
    found = [one for one in given if one[0].lower().replace("-", "_") == key]
    return (found[-1][0], found[-1][1].strip(), found[-1][2]) if found else None


def check(given: Sequence[Given]) -> list[Given]:
    """Returns every setting's effective value with its source; ConfigError for the first that is refused."""
    _refuse_undecodable(given)
    effective = _core.check(given)
    folder = last(given, "working_dir")
    if folder is not None and not Path(folder[1]).is_dir():
        raise _refused(("working_dir", *folder[1:]), "must be a folder that exists")
    return effective


def _refuse_undecodable(given: Sequence[Given]) -> None:
    """Refuses text that was not UTF-8: Python keeps such bytes of arguments and variables as lone surrogates."""
    for entry in given:
        if any("\ud800" <= character <= "\udfff" for text in entry for character in text):
            raise _refused(entry, "must be UTF-8")


def _unreadable(name: str, source: str, why: str) -> ConfigError:
    return _refused(("config", name, source), f"can't read the file: {why}")


def _refused(given: Given, why: str) -> ConfigError:
    """An error worded like the broker's own: on one line, with a long value truncated."""
    key, value, source = (one_line(text) for text in given)
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return ConfigError(f"setting '{key}' (value '{shown}', {source}): {why}")
