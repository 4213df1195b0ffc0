"""Where settings come from: a file, the environment, the command line or keyword arguments.

Each source becomes a list of (key, value, source) in rising priority; `_core` knows the settings and checks them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

from stompica import _core
from stompica.errors import ConfigError

Given: TypeAlias = tuple[str, str, str]
"""Key, value and source of one setting, as somebody wrote it."""

SettingValue: TypeAlias = str | int | float | bool | timedelta | Sequence[str | int] | os.PathLike[str] | None
"""What a keyword argument may hold; None leaves the setting at its default."""

ENVIRONMENT_PREFIX = "STOMPICA_"

# Variables that begin like ours and are not settings: the project's own tests and benches, and what Kubernetes and
# container links put into every container beside a service called "stompica".
_NOT_SETTINGS = re.compile(r"STOMPICA_(TEST_.*|BENCH_.*|SERVICE_.*|NAME|ENV_.*|PORT_\d+_(TCP|UDP).*)")


def from_environment(environment: Mapping[str, str]) -> list[Given]:
    """The settings in `STOMPICA_…` variables, by name. A service link (`STOMPICA_PORT=tcp://…`) is not a setting."""
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
    """Keyword arguments of `Broker` as texts."""
    return [(key, _text(value), "argument") for key, value in settings.items() if value is not None]


def _text(value: SettingValue) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)}ms"
    if isinstance(value, (str, int, float)):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Iterable):
        return ",".join(str(item) for item in value)
    raise TypeError(f"a setting is a text, a number, a bool, a timedelta or a sequence, not {type(value).__name__}")


def read_file(name: str, folder: str = ".") -> list[Given]:
    """The settings of a TOML file, or of stompserver's YAML; a relative name starts from `folder`."""
    try:
        text = (Path(folder) / name).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"setting 'config' (value '{name}'): can't read the file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"setting 'config' (value '{name}'): can't read the file: not UTF-8") from None
    return _core.parse_file(name, text)


def collect(given: Sequence[Given]) -> list[Given]:
    """`given` behind the settings of the file that it names by `config`, if any: the whole in rising priority."""
    file = last(given, "config")
    if file is None:
        return list(given)
    return [*read_file(file, last(given, "working_dir") or "."), *given]


def last(given: Sequence[Given], key: str) -> str | None:
    """The value that wins for `key`, which has no alias; None where nobody wrote it."""
    values = [value for name, value, _ in given if name.lower().replace("-", "_") == key]
    return values[-1] if values else None


def check(given: Sequence[Given]) -> list[Given]:
    """Every setting's value in force with its source; raises ConfigError for the first that is refused."""
    effective = _core.check(given)
    folder = last(given, "working_dir")
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError(f"setting 'working_dir' (value '{folder}'): must be a folder that exists")
    return effective
