"""The output of `stompica --help` and `stompica config`, from the table of settings."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from stompica import _core
from stompica.logs import one_line
from stompica.settings import Given

_USAGE = """\
stompica {version}: a STOMP 1.0-1.2 message broker over TCP and WebSocket on one port

usage: stompica [serve] [key=value ...] [options]   start the broker
       stompica config [key=value ...]              print the effective settings and their sources
       stompica config check FILE                   check a settings file
       stompica diag [QUERY] [options]              query a running broker
       stompica store COMMAND [options]             info, verify, export, import, compact a store
       stompica record --diag URL --into DIR        record a running broker for analysis
       stompica bench list|run|compare|report       benchmark stompica and other brokers
       stompica --help | --version

Settings are written as key=value or --key value, or come from the environment (STOMPICA_KEY) or
from the file named by config=FILE (TOML, or stompserver's YAML). The command line overrides the
environment, which overrides the file. Names may be in any case. Sizes take KiB, MiB, GiB (k, m,
g), times take ms, s, m, h.

stompserver's options: -p port  -b host  -q store  -w working_dir  -s dir  -d debug  -a auth
  -c checkpoint  -C config  -h help

Signals: SIGTERM and SIGINT drain and exit, a second one stops at once; SIGHUP rereads the settings
file. Exit status: 0 after an orderly shutdown, 2 for invalid settings, 1 for any other failure
(such as a port in use).
"""

_WIDTH = 100
_INDENT = " " * 6
_TOML_NUMBER_MAX = 2**63 - 1


def usage() -> str:
    """The full help: usage, then the settings by group with their defaults, bounds and meanings."""
    parts = [_USAGE.format(version=_core.__version__)]
    group = ""
    for setting in _core.settings():
        if setting.group != group:
            group = setting.group
            parts.append(f"{group}:")
        parts.append(_entry(setting))
    return "\n".join(parts)


def _entry(setting: _core.Setting) -> str:
    head = f"  {setting.key}={setting.default}"
    notes = [f"Allowed: {setting.allowed}."]
    if setting.aliases:
        notes.append(f"Also named {', '.join(setting.aliases)}.")
    if setting.accepted is not None:
        notes = [
            f"Not built yet: only {' or '.join(setting.accepted)} is accepted."
            if setting.accepted
            else "Not built yet: refused."
        ]
    text = " ".join([setting.doc, *notes])
    # Words such as drop-newest and E-FRAME-TIMEOUT are kept whole, so that they can be searched for and copied.
    lines = textwrap.wrap(text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)
    return "\n".join([head, *lines])


def effective(settings: Sequence[Given]) -> str:
    """The effective settings as a TOML file that can be read back, each with its source as a comment."""
    refused = {setting.key for setting in _core.settings() if setting.accepted == []}
    lines = []
    for key, value, source in settings:
        if key in refused:
            continue
        shown = value if _is_toml_number(value) else _toml_text(value)
        comment = "# " if key == "config" else ""  # a settings file can't name another one
        lines.append(f"{comment}{key} = {shown}".ljust(44) + f"  # {one_line(source)}")
    return "\n".join(lines)


def _is_toml_number(value: str) -> bool:
    """Whether this is a TOML integer in its canonical form: no leading zeros, within 64 bits."""
    digits = value.isascii() and value.isdecimal() and len(value) <= len(str(_TOML_NUMBER_MAX))
    return digits and str(int(value)) == value and int(value) <= _TOML_NUMBER_MAX


def _toml_text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in escaped) + '"'
