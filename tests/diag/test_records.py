"""Answers of a broker of another version, and answers that are none."""

from __future__ import annotations

from typing import Any

import pytest

from stompica.diag import Bucket, DiagError, Stage, Stale, plain, records


def test_names_that_are_not_known_are_passed_over() -> None:
    assert records.decode("store", {"kind": "memory", "bytes": 5}) == records.Store("memory")


def test_stale_has_words_of_its_own_for_pythons() -> None:
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
def test_an_answer_that_does_not_fit_is_named(query: str, answer: Any, what: str) -> None:
    with pytest.raises(DiagError, match=what):
        records.decode(query, answer)


def test_quantiles_of_a_stage() -> None:
    stage = Stage(100, 5000, (Bucket(10, 19, 50), Bucket(20, 39, 49), Bucket(640, 1279, 1)))
    assert [stage.quantile_ns(q) for q in (0, 0.5, 0.51, 0.99, 1)] == [19, 19, 39, 39, 1279]
    assert Stage(0, 0).quantile_ns(0.5) == 0 and Stage(0, 0).mean_ns == 0
