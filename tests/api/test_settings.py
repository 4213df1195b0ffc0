"""Where settings come from, their priority, and how a bad one is refused (docs/behaviour.md, section 1)."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.api.command_line import TEXT, CommandLine, effective, refused, sources

WHOLE = "must be a whole number, "


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("port=70000", f"setting 'port' (value '70000', command line): {WHOLE}0 to 65535"),
        ("port=-1", f"setting 'port' (value '-1', command line): {WHOLE}0 to 65535"),
        ("port=http", f"setting 'port' (value 'http', command line): {WHOLE}0 to 65535"),
        ("port=", f"setting 'port' (value '', command line): {WHOLE}0 to 65535"),
        ("PORT=1.5", f"setting 'port' (value '1.5', command line): {WHOLE}0 to 65535"),
        ("writers=0", f"setting 'writers' (value '0', command line): {WHOLE}1 to 64"),
        ("writers=65", f"setting 'writers' (value '65', command line): {WHOLE}1 to 64"),
        ("processors=67", f"setting 'processors' (value '67', command line): {WHOLE}0 to 66"),
        ("max_message_size=16XB", "setting 'max_message_size' (value '16XB', command line): must be a size, 1 to 2GiB"),
        (
            "login_timeout=soon",
            "setting 'login_timeout' (value 'soon', command line): must be a time, 10ms to 1h (a bare number is in s)",
        ),
        (
            "ack_timeout=0.5",
            "setting 'ack_timeout' (value '0.5', command line): must be a time, 0 to 365d (a bare number is in ms)",
        ),
        (
            "memory_limit=101%",
            "setting 'memory_limit' (value '101%', command line): "
            "must be a size from 1MiB, or a share of the memory, 1% to 100%",
        ),
        (
            "slow_consumer=wait",
            "setting 'slow_consumer' (value 'wait', command line): "
            "must be block:TIME (100ms to 1h), drop-oldest, drop-newest or disconnect",
        ),
        (
            "heartbeat=10000",
            "setting 'heartbeat' (value '10000', command line): "
            "must be two numbers of milliseconds as in 10000,10000, each 0 (none) to 4294967295",
        ),
        ("wildcards=x", "setting 'wildcards' (value 'x', command line): must be ancestor or segment"),
        ("log_level=loud", "setting 'log_level' (value 'loud', command line): must be debug, info, warn or error"),
        ("debug=maybe", "setting 'debug' (value 'maybe', command line): must be 0 or 1"),
        ("host=", f"setting 'host' (value '', command line): {TEXT}"),
        ("config=", f"setting 'config' (value '', command line): {TEXT}"),
        ("dir=a\nb", f"setting 'dir' (value 'a\\nb', command line): {TEXT}"),
        ("dir=\udcff", "setting 'dir' (value '\\udcff', command line): must be UTF-8"),
        ("working_dir=none\n", "setting 'working_dir' (value 'none', command line): must be a folder that exists"),
        (
            f"working_dir={'x' * 100}",
            f"setting 'working_dir' (value '{'x' * 80}…', command line): must be a folder that exists",
        ),
        (
            "ws_origins=example.org",
            "setting 'ws_origins' (value 'example.org', command line): "
            "must be same-host, or origins separated by commas as in https://example.org:8443",
        ),
        ("prot=1", "unknown setting 'prot' (value '1', command line): did you mean 'port'?"),
        (
            "max-conections=1",
            "unknown setting 'max-conections' (value '1', command line): did you mean 'max_connections'?",
        ),
        ("colour=red", "unknown setting 'colour' (value 'red', command line): 'stompica --help' lists the settings"),
        ("=1", "unknown setting '' (value '1', command line): 'stompica --help' lists the settings"),
    ],
)
def test_a_bad_setting_prints_one_line_and_ends_with_status_2(
    stompica: CommandLine, argument: str, message: str
) -> None:
    assert refused(stompica("port=0", argument)) == message


@pytest.mark.parametrize(
    "argument",
    ["auth=1", "auth=on", "users=.passwd", "tls_cert=a.pem", "tls_key=a.pem", "tls_client_ca=a.pem"],
)
def test_a_setting_of_a_missing_feature_is_refused_by_name(stompica: CommandLine, argument: str) -> None:
    key, value = argument.split("=")
    message = refused(stompica("port=0", argument))
    assert message.startswith(f"setting '{key}' (value '{value}', command line): not built yet in this version")


@pytest.mark.parametrize(
    "arguments",
    [["-c", "0"], ["checkpoint=0"], ["auth=0"], ["auth=off"], ["fsync=always"], ["fsync=never"], ["store=memory"],
     ["record=none"], ["tls_cert=none"]],
)  # fmt: skip
def test_a_setting_that_asks_for_the_only_behaviour_is_accepted(stompica: CommandLine, arguments: list[str]) -> None:
    assert stompica("config", *arguments).returncode == 0


def test_defaults_are_as_documented(stompica: CommandLine) -> None:
    shown = effective(stompica("config"))
    assert (shown["port"], shown["host"], shown["slow_consumer"]) == (61613, "127.0.0.1", "block:5s")
    assert (shown["max_message_size"], shown["outbox_limit"], shown["heartbeat"]) == ("16MiB", "32MiB", "10000,10000")
    assert set(sources(stompica("config")).values()) == {"default"}


def test_the_command_line_has_priority_over_the_environment_and_that_over_the_file(
    stompica: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "s.toml").write_text("port = 1\nhost = '::1'\ndrain = 1\nmax_headers = 7\n")
    result = stompica("config", "port=3", "config=s.toml", env={"STOMPICA_PORT": "2", "STOMPICA_HOST": "127.0.0.2"})
    shown = effective(result)
    assert (shown["port"], shown["host"], shown["drain"], shown["max_headers"]) == (3, "127.0.0.2", "1s", 7)
    came = sources(result)
    assert (came["port"], came["host"], came["drain"]) == ("command line", "STOMPICA_HOST", "s.toml line 3")
    assert (came["max_headers"], came["writers"]) == ("s.toml line 4", "default")


def test_the_output_of_config_is_a_settings_file(stompica: CommandLine, tmp_path: Path) -> None:
    first = stompica("config", "port=0", "writers=3", "slow_consumer=drop-oldest", "ws_origins=https://a,https://b")
    (tmp_path / "again.toml").write_text(first.stdout)
    assert effective(stompica("config", "-C", "again.toml")) == effective(first)


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("dir=007", "007"),
        ("dir=99999999999999999999", "99999999999999999999"),
        ("dir=a\n", "a"),
        ("max_queue_length=18446744073709551614", "18446744073709551614"),
    ],
)
def test_a_value_without_a_plain_toml_form_is_read_back(
    stompica: CommandLine, tmp_path: Path, argument: str, shown: str
) -> None:
    first = stompica("config", argument, "processors=5\n")
    (tmp_path / "again.toml").write_text(first.stdout)
    assert effective(stompica("config", "-C", "again.toml"))[argument.split("=")[0]] == shown


@pytest.mark.parametrize(("processors", "writers"), [(1, 1), (2, 1), (3, 1), (4, 2), (66, 64)])
def test_processors_sets_writers(stompica: CommandLine, processors: int, writers: int) -> None:
    result = stompica("config", f"processors={processors}")
    assert effective(result)["writers"] == writers
    assert sources(result)["writers"] == f"processors={processors}, command line"


def test_processors_0_means_the_default_of_writers(stompica: CommandLine) -> None:
    assert effective(stompica("config", "processors=0"))["writers"] == effective(stompica("config"))["writers"]


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("max_message_size=65536", "64KiB"),
        ("max_message_size=64k", "64KiB"),
        ("max_message_size=1.5MiB", "1536KiB"),
        ("MAX_MESSAGE_SIZE=1MB", 1000000),
        ("login-timeout=2", "2s"),
        ("login_timeout=2500ms", "2500ms"),
        ("drain=2m", "2m"),
        ("max_input_queue_size=1_000", 1000),
        ("slow_consumer=block:500ms", "block:500ms"),
        ("heart-beat=0,0", "0,0"),
        ("debug=true", 1),
        ("TTL=0", 0),
        ("ttl=60000", "1m"),
        ("ack_timeout=5s", "5s"),
        ("max_retained=0", 0),
        ("max_queue_length=5", 5),
        ("max_queue_length=unlimited", "unlimited"),
        ("max_queue_bytes=1MiB", "1MiB"),
        ("max_stale_queue_size=7", 7),
        ("queue_idle_expiry=90", "90s"),
        ("max_deliveries=3", 3),
        ("redelivery_delay=250", "250ms"),
        ("prefetch=1", 1),
    ],
)
def test_values_may_have_units_and_names_any_case(stompica: CommandLine, argument: str, shown: object) -> None:
    key = argument.split("=")[0].lower().replace("-", "_")
    key = {"heart_beat": "heartbeat", "ttl": "TTL"}.get(key, key)
    assert effective(stompica("config", argument))[key] == shown


def test_debug_sets_the_debug_level(stompica: CommandLine) -> None:
    assert effective(stompica("config", "-d"))["log_level"] == "debug"


def test_max_connections_follows_the_descriptor_limit(stompica: CommandLine) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert effective(stompica("config"))["max_connections"] == min(hard - 128, 10_000_000)


def test_an_unknown_environment_variable_is_refused(stompica: CommandLine) -> None:
    message = refused(stompica("config", env={"STOMPICA_POTR": "1"}))
    assert message == "unknown setting 'POTR' (value '1', STOMPICA_POTR): did you mean 'port'?"


def test_variables_of_tests_and_service_links_are_ignored(stompica: CommandLine) -> None:
    links = {
        "STOMPICA_TEST_BROKER": "x",
        "STOMPICA_SERVICE_HOST": "10.0.0.1",
        "STOMPICA_SERVICE_PORT": "61613",
        "STOMPICA_PORT": "tcp://10.0.0.1:61613",
        "STOMPICA_PORT_61613_TCP": "tcp://10.0.0.1:61613",
    }
    result = stompica("config", env=links)
    assert effective(result)["port"] == 61613 and sources(result)["port"] == "default"


def test_a_long_value_or_one_with_line_ends_still_prints_one_short_line(stompica: CommandLine) -> None:
    message = refused(stompica("port=" + "9\n" * 5000))
    assert len(message) < 400
