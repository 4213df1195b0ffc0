"""The command line: `stompica [serve] [key=value …]`, `stompica config`, `stompica config check FILE`, and the tools.

Exit status: 0 after an orderly shutdown; 2 for a setting, an option or a settings file that can't be used; 1 for any
other failure, such as a port in use or a panic.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from stompica import _core, help_text, server, settings
from stompica.errors import ConfigError, StompicaError
from stompica.logs import open_standard_streams, tell
from stompica.settings import Given

_SHORT = {
    "p": "port",
    "b": "host",
    "q": "store",
    "w": "working_dir",
    "s": "dir",
    "d": "debug",
    "a": "auth",
    "c": "checkpoint",
    "C": "config",
}
_COMMANDS = ("serve", "config")

# Commands with their own options: modules with a `main`, imported only when used.
_TOOLS = {
    "diag": "stompica.diag.cli",
    "store": "stompica.store.cli",
    "record": "stompica.bench.live",
    "bench": "stompica.bench.cli",
}


@dataclass
class Arguments:
    """A command line, parsed but not yet checked against the settings."""

    command: str = "serve"
    given: list[Given] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """Words that are neither the command nor a setting; allowed after `config` only."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_standard_streams()
    try:
        if words and words[0] in _TOOLS:
            return _use_tool(words[0], words[1:])
        return _run(parse(words))
    except ConfigError as error:
        return _complain(str(error), 2)
    except StompicaError as error:
        return _complain(str(error), 1)


def parse(arguments: Sequence[str]) -> Arguments:
    """Parses a command line. ConfigError for an option that does not exist or lacks its value."""
    parsed = Arguments()
    rest = list(arguments)
    if rest and rest[0] in _COMMANDS:
        parsed.command = rest.pop(0)
    while rest:
        word = rest.pop(0)
        if word in ("-h", "--help", "help"):
            return Arguments("help")
        if word in ("--version", "version"):
            return Arguments("version")
        if word.startswith("--") and len(word) > 2:
            parsed.given.append(_long(word, rest))
        elif word.startswith("-") and len(word) > 1:
            parsed.given.extend(_short(word, rest))
        elif "=" in word:
            key, _, value = word.partition("=")
            parsed.given.append((key, value, "command line"))
        else:
            parsed.words.append(word)
    return parsed


def _is_flag(name: str) -> bool:
    wanted = name.lower().replace("-", "_")
    return any(row.is_flag for row in _core.settings() if wanted == row.key.lower() or wanted in row.aliases)


def _long(word: str, rest: list[str]) -> Given:
    name, equals, value = word[2:].partition("=")
    if not equals:
        value = "1" if _is_flag(name) else _value(word, name, rest)
    return name, value, "command line"


def _short(word: str, rest: list[str]) -> list[Given]:
    """Parses one word of short options: flags may be joined, and a value may follow its letter without a space."""
    given: list[Given] = []
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter == "h":
            raise ConfigError("option '-h' can't be combined with others: write 'stompica -h'")
        if letter not in _SHORT:
            options = " ".join(f"-{known}" for known in _SHORT)
            raise ConfigError(f"unknown option '-{letter}': the short options are {options} -h")
        key = _SHORT[letter]
        if _is_flag(key):
            value = "1"
        else:
            value, letters = letters.removeprefix("=") or _value(f"-{letter}", key, rest), ""
        given.append((key, value, "command line"))
    return given


def _value(option: str, name: str, rest: list[str]) -> str:
    if not rest:
        settings.check([(name, "", "command line")])
        raise ConfigError(f"option '{option}' needs a value")
    return rest.pop(0)


def _run(parsed: Arguments) -> int:
    if parsed.command == "help":
        return _print(help_text.usage())
    if parsed.command == "version":
        return _print(f"stompica {_core.__version__}")
    if parsed.command == "config" and parsed.words[:1] == ["check"]:
        return _check_file(parsed.words[1:], parsed.given)
    if parsed.words:
        word = parsed.words[0]
        raise ConfigError(f"'{word}' is not a setting: write key=value; 'stompica --help' lists the settings")
    given = [*settings.from_environment(os.environ), *parsed.given]
    if parsed.command == "config":
        _core.raise_descriptor_limit()
        return _print(help_text.effective(settings.check(settings.collect(given))))
    server.serve(given)
    return 0


def _use_tool(name: str, words: list[str]) -> int:
    try:
        status: int = importlib.import_module(_TOOLS[name]).main(words)
    except BrokenPipeError:
        _forget_output()
        return 0
    except OSError as error:
        # For example a full disk, possibly the one that the output goes to.
        _forget_output()
        where = f"{error.filename}: " if error.filename else ""
        raise StompicaError(f"{where}{error.strerror or error}") from error
    except ImportError as error:
        # `stompica.recording` and `stompica.analysis` already name the packages they need.
        needs = f"'stompica {name}' needs the package {error.name}: pip install 'stompica[bench]'"
        raise StompicaError(needs if isinstance(error, ModuleNotFoundError) else str(error)) from error
    return status


def _check_file(names: list[str], given: list[Given]) -> int:
    if len(names) != 1 or given:
        raise ConfigError("'stompica config check FILE' takes the name of one settings file")
    found = settings.read_file(names[0])
    settings.check(found)
    return _print(f"{names[0]}: ok, {len(found)} setting{'' if len(found) == 1 else 's'}")


def _print(text: str) -> int:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _forget_output()
    except OSError as error:
        _forget_output()
        raise StompicaError(f"standard output: {error.strerror}") from error
    return 0


def _forget_output() -> None:
    """Sends stdout to the null device once its reader (`| head`) has closed it: Python would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, status: int) -> int:
    tell(f"stompica: {message}")
    return status
