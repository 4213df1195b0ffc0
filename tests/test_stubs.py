"""The type stub of the compiled module agrees with the module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_core_pyi_agrees_with_core(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed.txt"
    allowed.write_text("stompica._core.__all__\n")  # PyO3 adds it; the module is private
    checked = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "stompica._core", "--concise", "--allowlist", str(allowed)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "MYPYPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
