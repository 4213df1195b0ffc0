"""`stompica store info|verify|export|import|compact [--dir DIR]`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from stompica import settings
from stompica.store import commands


def main(arguments: Sequence[str]) -> int:
    """Runs one command on the files of a store; returns the exit status."""
    options = _parser().parse_args(arguments)
    directory = Path(options.dir) if options.dir is not None else _directory()
    try:
        if options.command == "info":
            return commands.info(directory, options.json)
        if options.command == "verify":
            return commands.verify(directory)
        if options.command == "export":
            return commands.export(directory, options.file)
        if options.command == "import":
            return commands.import_(Path(options.source), directory, options.skip_damaged)
        return commands.compact(directory)
    except KeyboardInterrupt:
        return 130


def _directory() -> Path:
    """The directory that a broker without arguments would use: from the environment, or the default."""
    effective = settings.check(settings.collect(settings.from_environment(os.environ)))
    values = {key: value for key, value, _ in effective}
    return Path(values["working_dir"]) / values["dir"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stompica store",
        description="Works on the files of store=file while no broker uses them.",
        epilog="docs/store.md explains the commands. Exit status: 1 if something is damaged or fails, 2 for bad usage.",
    )
    commands_of = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str) -> argparse.ArgumentParser:
        one = commands_of.add_parser(name, help=help, description=help.capitalize() + ".")
        one.add_argument(
            "--dir", metavar="DIR", help="directory of the store; default: that of a broker without arguments"
        )
        return one

    info = command("info", "show the space that the store takes, and what its queues have")
    info.add_argument("--json", action="store_true", help="one line of JSON")
    command("verify", "read everything, and report what is damaged")
    export = command("export", "write everything as lines of JSON")
    export.add_argument("file", nargs="?", metavar="FILE", help="default: standard output")
    import_ = command("import", "add messages from lines of JSON, or from a file store of stompserver")
    import_.add_argument("source", metavar="FILE|DIR", help="a file of JSON lines, or a directory of stompserver")
    import_.add_argument(
        "--skip-damaged", action="store_true", help="leave out messages of stompserver that can't be read"
    )
    command("compact", "rewrite files until that saves nothing more")
    return parser
