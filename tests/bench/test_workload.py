"""Workloads and the points of their sweeps."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stompica.bench import BenchError, fields, loadgen, workload

ROOT = Path(__file__).parent.parent.parent
Write = Callable[[str, str], Path]


def only(folder: Path) -> workload.Workload:
    (found,) = workload.load(folder)
    return found


def test_the_projects_workloads_are_read_by_both_programs() -> None:
    known = workload.load(ROOT / "bench" / "workloads")
    assert {"headline", "fanout-75", "latency-10", "queue-4x4", "scale-bodies"} <= {one.name for one in known}
    try:
        program = loadgen.find(ROOT)
    except BenchError as error:
        pytest.skip(str(error))
    for one in known:
        file = ROOT / "bench" / "workloads" / f"{one.name}.toml"
        for transport in one["transports"]:
            command = [program, "check", file, "--transport", transport]
            assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{one.name}\n"


def test_without_a_sweep_each_transport_is_a_point(workloads: Write) -> None:
    one = only(workloads("fan", 'transports = ["tcp", "ws"]\nconnections = 75\n'))
    points = workload.points(one, {})
    assert [(point.transport, point.writers, point["connections"], point["window"]) for point in points] == [
        ("tcp", None, 75, 1000),
        ("ws", None, 75, 1000),
    ]


def test_a_sweep_combines_all_values(workloads: Write) -> None:
    one = only(
        workloads("fan", "connections = 75\nmessages = 13_334\n[sweep]\nbody = [117, 65_536]\nwriters = [1, 2]\n")
    )
    points = workload.points(one, {})
    assert [(point["body"], point.writers) for point in points] == [(117, 1), (117, 2), (65536, 1), (65536, 2)]
    small, large = points[0], points[2]
    assert (small["window"], small["messages"]) == (1000, 13_334)
    assert (large["window"], large["messages"]) == (128, 512), "about 8 MiB in flight"
    assert "sweep" not in small.fields


def test_subscribers_keep_a_round_at_a_million_deliveries(workloads: Write) -> None:
    one = only(workloads("fan", "connections = 75\nmessages = 13_334\n"))
    points = workload.points(one, {"subscribers": [1, 10, 5000]})
    assert [(point["connections"], point["messages"]) for point in points] == [(1, 300_000), (10, 100_000), (5000, 200)]


def test_a_queues_window_is_at_least_twice_its_prefetch(workloads: Write) -> None:
    one = only(
        workloads("q", 'kind = "queue"\nack = "client-individual"\nconnections = 4\npublishers = 4\nmessages = 9\n')
    )
    points = workload.points(one, {"prefetch": [10, 1000]})
    assert [point["window"] for point in points] == [1000, 2001]


def test_the_command_line_overrides_the_file(workloads: Write) -> None:
    one = only(workloads("fan", 'transports = ["tcp", "ws"]\n[sweep]\nbody = [1, 2]\n'))
    more = workload.parse_sweep(["body=1_000,4_000", "transport=ws"])
    assert [(point.transport, point["body"]) for point in workload.points(one, more)] == [("ws", 1000), ("ws", 4000)]


def test_the_generator_reads_the_same_fields(workloads: Write, tmp_path: Path) -> None:
    text = 'tag = "h\\"i "\njoint = true\nseconds = 2.5\npattern = "/topic/*"\nspread = 3\nsubscriptions = 5\n'
    (point,) = workload.points(only(workloads("own", text + 'wanted = { per_s = 5 }\nabout = "x"\n')), {})
    again = workload.tomllib.loads(point.toml())
    assert again == {**point.fields} and again["tag"] == 'h"i ' and again["transports"] == ["tcp"]
    assert "wanted" not in again


def test_a_quick_run_is_small(workloads: Write) -> None:
    (point,) = workload.points(only(workloads("fan", "connections = 5_000\nmessages = 1_000\n")), {}, quick=True)
    assert (point["connections"], point["messages"], point.fields["min_cpu_s"]) == (500, 100, 0.0)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[sweep]\nbody = 5\n", "lists of values"),
        ("[sweep]\ncolour = [1]\n", r"\[sweep\]: 'colour' can't be varied; these can be: body, "),
        ("[sweep]\nbody = ['much']\n", r"bad.toml: \[sweep\]: body = 'much': body is a whole number of at least 1"),
        ("[sweep]\nack = ['client']\n", "ack = 'client': ack is auto or client-individual"),
        ("[sweep]\nbody = [20, 30, 20]\n", "body = 20 occurs twice"),
        ("[sweep]\nwriters = [65]\n", "writers = 65: writers is a whole number from 1 to 64"),
        ("connections = \n", "workloads/bad.toml: "),
        ("colour = 1\n", r"bad.toml: unknown field 'colour'; known fields are name, .* and \[sweep\]"),
        ("connections = 0\n", "connections = 0: connections is a whole number of at least 1"),
        ("connections = true\n", "connections = True: connections is a whole number of at least 1"),
        ("messages = 1.5\n", "messages = 1.5: messages is a whole number of at least 1"),
        ("joint = 1\n", "joint = 1: joint is true or false"),
        ("kind = 'fast'\n", "kind = 'fast': kind is window, latency, .* or recover"),
        ("transports = ['udp']\n", r"transports = \['udp'\]: transports is a list of tcp, ws"),
        ("transports = 'tcp'\n", "transports = 'tcp': transports is a list of tcp, ws"),
        ("seconds = 1000\n", "seconds = 1000: seconds is a number from 0.1 to 600"),
        ("rate = 2_000_000\n", "rate = 2000000: rate is a whole number from 1 to 1,000,000"),
    ],
)
def test_a_wrong_file_is_named(workloads: Write, text: str, what: str) -> None:
    with pytest.raises(BenchError, match=what):
        workload.load(workloads("bad", text))


def test_a_workload_that_the_generator_refuses_is_named_before_anything_runs(workloads: Write, tmp_path: Path) -> None:
    try:
        program = loadgen.find(ROOT)
    except BenchError as error:
        pytest.skip(str(error))
    one = only(workloads("fan", "prefetch = 7\n"))
    with pytest.raises(BenchError, match='workload fan: ack and prefetch are for kind = "queue"'):
        loadgen.check(program, workload.points(one, {}), tmp_path)
    small = workload.points(only(workloads("fan", "")), {"body": [117, 9]})
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(BenchError, match="workload fan: body is at least 16"):
        loadgen.check(program, small, again)


def test_fields_are_those_of_the_load_generator() -> None:
    source = (ROOT / "bench" / "loadgen" / "src" / "workload.rs").read_text()
    struct = source.partition("pub struct Workload {")[2].partition("\n}")[0]
    names = {line.split()[1].rstrip(":") for line in struct.splitlines() if line.startswith("    pub ")}
    harness = source.partition("const HARNESS_FIELDS")[2].partition(" = [")[2].partition("]")[0]
    assert names.isdisjoint(others := set(json.loads(f"[{harness}]")))
    assert names | others == {*fields.FIELDS, "sweep"}
    kinds = source.partition("pub enum Kind {")[2].partition("\n}")[0]
    names = {line.strip(" ,") for line in kinds.splitlines() if line.endswith(",")}
    assert {re.sub(r"\B([A-Z])", r"-\1", name).lower() for name in names} == set(fields.KINDS)


def test_unknown_names_and_missing_files_are_reported(workloads: Write, tmp_path: Path) -> None:
    known = workload.load(workloads("fan", ""))
    with pytest.raises(BenchError, match="unknown workload 'fun'; known workloads are fan"):
        workload.pick(known, ["fun"])
    with pytest.raises(BenchError, match="is not made for ws, only for tcp"):
        workload.points(known[0], {"transport": ["ws"]})
    with pytest.raises(BenchError, match="NAME=VALUE"):
        workload.parse_sweep(["body"])
    with pytest.raises(BenchError, match="--sweep body=30: body is varied twice"):
        workload.parse_sweep(["body=20", "body=30"])
    with pytest.raises(BenchError, match="from the top of the source tree"):
        workload.load(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BenchError, match="empty contains no workload"):
        workload.load(tmp_path / "empty")
    (tmp_path / "empty" / "fan.toml").write_text("name = 'fun'")
    with pytest.raises(BenchError, match="name = 'fun', but the file is called 'fan'"):
        workload.load(tmp_path / "empty")


def test_groups_stand_for_their_workloads(workloads: Write) -> None:
    workloads("a", 'group = "g"\n')
    known = workload.load(workloads("b", 'group = "g"\n'))
    picked: list[Any] = workload.pick(known, ["b", "g"])
    assert [one.name for one in picked] == ["b", "a"]
