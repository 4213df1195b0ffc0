"""`stompica config` prints a settings file that gives the same settings, whatever they are."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stompica import ConfigError, _core, help_text
from stompica.settings import Given, check

KEYS = [row.key for row in _core.settings() if row.key != "working_dir"]  # that has to be a folder
NUMBERS = st.integers(0, 2**65).map(str) | st.from_regex(r"[0-9_]{1,20}", fullmatch=True)
WORDS = sorted({word.strip(",.") for row in _core.settings() for word in f"{row.allowed} {row.default}".split()})
UNITS = ["", "%", "ms", "s", "m", "h", "d", "b", "k", "KiB", "MiB", "GB", "T", ",0"]
VALUES = (
    NUMBERS
    | st.text()
    | st.sampled_from(WORDS)
    | st.builds(lambda number, unit: f"{number}{unit}", NUMBERS, st.sampled_from(UNITS))
    | st.text(min_size=1).map(lambda text: f"https://{text}")
)


def again(found: list[Given]) -> list[Given]:
    """Returns the settings in force with the printed ones as the only file."""
    return check(_core.parse_file("again.toml", help_text.effective(found)))


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(KEYS) | st.sampled_from(["host", "dir", "ws_origins"]), VALUES, st.text())
@example("dir", "007", "x")
@example("dir", "9" * 20, "x")
@example("host", "\U000e0001", "x")
@example("processors", "5\n", "x")
@example("max_queue_length", str(2**64 - 2), "x")
@example("port", "1", "a\nb.toml line 3")
def test_printed_settings_are_read_back_unchanged(key: str, value: str, source: str) -> None:
    try:
        found = check([(key, value, source)])
    except ConfigError:
        return
    printed = {name: shown for name, shown, _ in found if name != "config"}
    assert {name: shown for name, shown, _ in again(found) if name != "config"} == printed
