"""Answers of a broker of another version, and invalid answers."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import stompica
from stompica.diag import QUERIES, Bucket, DiagError, Stage, Stale, plain, records

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "diag.md"


def test_unknown_names_are_ignored() -> None:
    assert records.decode("store", {"kind": "memory", "bytes": 5}) == records.Store("memory")


def test_stale_has_field_names_that_python_allows() -> None:
    answer = {"in": 1, "out": 2, "stale": 3}
    assert records.decode("stale", answer) == Stale(input=1, output=2, stale=3)
    assert plain(Stale(1, 2, 3)) == answer


@pytest.mark.parametrize(
    ("query", "answer", "what"),
    [
        ("session", {"clients": 1}, "session lacks 'websockets'"),
        ("session", [], "not an object"),
        ("session-size", "many", "'many', not int"),
        ("queues", {}, "not a list"),
        ("store", {"kind": None}, "store.kind is None"),
        ("benchmark", {"enabled_ms_left": 0, "stages": []}, "benchmark.stages is"),
    ],
)
def test_an_answer_that_does_not_fit_is_an_error_with_its_name(query: str, answer: Any, what: str) -> None:
    with pytest.raises(DiagError, match=what):
        records.decode(query, answer)


def test_quantiles_of_a_stage_are_estimated() -> None:
    stage = Stage(100, 5000, (Bucket(10, 19, 50), Bucket(20, 39, 49), Bucket(640, 1279, 1)))
    assert [stage.quantile_ns(q) for q in (0, 0.5, 0.51, 0.99, 1)] == [19, 19, 39, 39, 1279]
    assert Stage(0, 0).quantile_ns(0.5) == 0 and Stage(0, 0).mean_ns == 0


def record_of(query: str) -> Any:
    """Returns the record type of a query, or of the rows of its list; None for plain values."""
    kind = QUERIES[query]
    if typing.get_origin(kind) is tuple:
        kind = typing.get_args(kind)[0]
    return kind if dataclasses.is_dataclass(kind) else None


@pytest.mark.parametrize("query", QUERIES)
def test_the_documentation_names_each_query_with_all_its_numbers(query: str) -> None:
    section = DOCUMENT.read_text(encoding="utf-8").partition("\n## Queries\n")[2].partition("\n## ")[0]
    (row,) = re.findall(rf"^\| .*`{query}`[,` a-z-]* \| (.*) \|$", section, re.MULTILINE)
    kind = record_of(query)
    keys = [] if kind is None else [item.metadata.get("key", item.name) for item in dataclasses.fields(kind)]
    assert [key for key in keys if f"`{key}`" not in row] == []


def test_each_field_of_a_record_has_a_description() -> None:
    mute: list[str] = []
    for kind in ast.parse(inspect.getsource(records)).body:
        if isinstance(kind, ast.ClassDef) and kind.decorator_list:
            for item, behind in zip(kind.body, [*kind.body[1:], None], strict=True):
                described = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
                if isinstance(item, ast.AnnAssign) and not described:
                    mute.append(f"{kind.name}.{ast.unparse(item.target)}")
    assert mute == []


USER = """
import stompica
import stompica.diag


def each() -> list[int]:
    with stompica.Broker() as broker:
        network: stompica.diag.Network = broker.diag("network")
        queues: tuple[stompica.diag.Queue, ...] = broker.diag("queues")
        subs: tuple[str, ...] = broker.diag("subs")
        with broker.diag.watch("shards", interval=0.5) as shards:
            for rows in shards:
                return [network.bytes_in, *(queue.size for queue in queues), *(row.cpu_us for row in rows), len(subs)]
    return []


async def remote() -> float:
    with stompica.diag.connect("stomp://127.0.0.1:61613", timeout=None) as diag:
        async for record in diag.watch("benchmark"):
            return record.stages["read"].mean_ns + diag("session-size")
    return 0.0


def wrong() -> None:
    stompica.Broker().diag("network").bytes  # type: ignore[attr-defined]
    size: str = stompica.Broker().diag("session-size")  # type: ignore[assignment]
"""


def test_a_user_s_script_passes_strict_type_checks(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    script = tmp_path / "user.py"
    script.write_text(USER, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", str(script)]
    package = Path(stompica.__file__).parent
    assert (package / "py.typed").exists()
    checked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=110, check=False)
    assert checked.stdout.startswith("Success"), checked.stdout + checked.stderr
