"""What kind of disk a folder is on."""

from __future__ import annotations

from pathlib import Path

from stompica.bench import BenchError

MEMORY = ("tmpfs", "ramfs", "devtmpfs")
"""File systems that are no disk: what is synced there costs nothing."""

_MOUNTS = Path("/proc/self/mountinfo")


def file_system(folder: Path) -> str:
    """The type of the file system of a folder, such as `ext4`; empty if that is unknown."""
    place = str(folder.resolve())
    found = ("", "")
    for line in _lines():
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].encode().decode("unicode_escape") if after else ""
        is_above = point == "/" or place == point or place.startswith(f"{point}/")
        # Of two at the same point, the later one hides the earlier one.
        if point and is_above and len(point) >= len(found[0]):
            found = (point, after.split(" ")[0])
    return found[1]


def check(folder: Path) -> None:
    """BenchError if what is stored in this folder stays in memory."""
    kind = file_system(folder)
    if kind in MEMORY:
        raise BenchError(f"{folder} is on {kind}, which is no disk: name a folder of one in the variable TMPDIR")


def _lines() -> list[str]:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
