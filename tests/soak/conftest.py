"""Everything in this folder is marked `soak` and left out unless `-m soak` selects it (`make soak`)."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", "soak: takes long; run with `make soak`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests of this folder, gives them more time, and deselects them unless `soak` is selected."""
    here = [item for item in items if HERE in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.soak)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600), append=False)
    if "soak" not in str(config.getoption("markexpr")):
        config.hook.pytest_deselected(items=here)
        items[:] = [item for item in items if item not in here]
