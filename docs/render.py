"""Renders docs/configuration.md from the broker's table of settings. `make docs` runs it; a test compares the two."""

from __future__ import annotations

from pathlib import Path

from stompica import _core

PAGE = Path(__file__).with_name("configuration.md")

_HEAD = """\
# Settings

<!-- Rendered by `make docs` from the table in rust/broker/src/config/table.rs; change it there. -->

Every setting can come from, in rising priority: its default, a settings file (`config=FILE` or `-C FILE`), the
environment (`STOMPICA_PORT=3000`), the command line (`port=3000` or `--port 3000`). `stompica config` prints the
settings in force and the source of each value; its output is itself a settings file. `stompica config check FILE`
checks one.

- **Names** may be in any case, with `-` or `_`.
- **Sizes** are in bytes, or have a unit: `KiB`, `MiB`, `GiB` (also `k`, `m`, `g`), or `KB`, `MB`, `GB` for powers of
  1000.
- **Times** have a unit: `ms`, `s`, `m`, `h`, `d`. A bare number is in the setting's own unit.
- **Files** are TOML (`max_message_size = "1MiB"`, lists for settings that take several values, no tables), or
  stompserver's YAML (`:port: 61613`). A file is read only when it is named. Relative names start from `working_dir`. In
  stompserver's files `daemon`, `group`, `user`, `logdir`, `logfile` and `pidfile` are ignored: logs go to stderr, and a
  process supervisor does the rest.
- **Environment**: a variable `STOMPICA_…` that is not a setting is an error. Exceptions are `STOMPICA_TEST_…` and
  `STOMPICA_BENCH_…` (used by this project), and the variables that container platforms add for a service named stompica
  (`STOMPICA_SERVICE_…`, `STOMPICA_PORT_…`, `STOMPICA_PORT=tcp://…`).
- **`processors`** is the C stompica's way to set `writers`: `processors` minus 2, at least 1.
- **A refused setting** gives one line on stderr that names the setting, its value, where it was written and what is
  allowed; the exit status is 2. A settings file that cannot be read is status 2, too; a port in use is status 1.
- **Not built yet**: such a setting is refused by name, so that nobody runs a broker that is more open or less durable
  than they believe. Values that ask for what happens anyway are accepted, as `auth=0`.
- **Reload**: SIGHUP reads the file again. Settings marked *reload* then apply to the running broker. If other settings
  changed, the log says that they need a restart. An invalid file changes nothing.

From Python the same names are keyword arguments, `Broker(max_headers=20, heartbeat=(0, 0))`; `Broker` does not read the
environment. In `run(processors, port, max_input_queue_size, max_stale_queue_size, TTL)`, and only there, 0 means
the default.
"""


def render() -> str:
    """The whole page."""
    lines = [_HEAD]
    group = ""
    for setting in _core.settings():
        if setting.group != group:
            group = setting.group
            lines += [f"\n## {group}\n", "| setting | default | allowed | | meaning |", "|---|---|---|---|---|"]
        names = ", ".join(f"`{name}`" for name in (setting.key, *setting.aliases))
        note = "reload" if setting.reloadable else "restart"
        if setting.accepted is not None:
            note = "not built yet: " + (f"only {' or '.join(setting.accepted)}" if setting.accepted else "refused")
        lines.append(f"| {names} | `{setting.default}` | {setting.allowed} | {note} | {_cell(setting.doc)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
