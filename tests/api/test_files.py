"""Settings files: TOML, stompserver's YAML, `stompica config check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.command_line import CommandLine, effective, refused

EVERY_TYPE = """\
port = 3000
HOST = "::1"
debug = true
login_timeout = 1.5
ws_origins = ["https://a.example", "https://b.example:8443"]
max_message_size = "64KiB"
"""


def test_toml_values_of_every_type_are_read(stompica: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(EVERY_TYPE)
    shown = effective(stompica("config", "config=s.toml"))
    assert (shown["port"], shown["host"], shown["debug"], shown["login_timeout"]) == (3000, "::1", 1, "1500ms")
    assert shown["ws_origins"] == "https://a.example,https://b.example:8443"
    checked = stompica("config", "check", "s.toml")
    assert (checked.returncode, checked.stdout) == (0, "s.toml: ok, 6 settings\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 1\nprot = 2\n", "unknown setting 'prot' (s.toml line 2): did you mean 'port'?"),
        (
            "\n\nport = 70000\n",
            "setting 'port' (value '70000', s.toml line 3): must be a whole number, 0 to 65535",
        ),
        ("port = [1, 2]\n", "setting 'port' (value '1,2', s.toml line 1): must be a whole number, 0 to 65535"),
        (
            "[limits]\nmax_headers = 1\n",
            "unknown setting 'limits' (s.toml line 1): 'stompica --help' lists the settings",
        ),
        (
            "drain = 2024-01-01\n",
            "setting 'drain' (s.toml line 1): "
            "must be a string, a number, true or false, or a list of these, not a datetime",
        ),
        (
            "ws_origins = [['https://a']]\n",
            "setting 'ws_origins' (s.toml line 1): "
            "must be a string, a number, true or false, or a list of these, not a list with an array in it",
        ),
        (
            "port = 99999999999999999999\n",
            "setting 'port' (value '99999999999999999999', s.toml line 1): must be a whole number, 0 to 65535",
        ),
        ("config = 'b.toml'\n", "setting 'config' (s.toml line 1): a settings file can't name another one"),
        ("auth = true\n", "setting 'auth' (value 'true', s.toml line 1): not built yet in this version; only 0 is"),
    ],
)
def test_a_bad_file_is_refused_with_setting_and_line(
    stompica: CommandLine, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "s.toml").write_text(text)
    assert refused(stompica("config", "check", "s.toml")) == message
    assert refused(stompica("-C", "s.toml", "port=0")) == message


@pytest.mark.parametrize("text", ["port = \n", "port\n", "port = 1\nport = 2\n", "'"])
def test_invalid_toml_is_refused_with_its_line(stompica: CommandLine, tmp_path: Path, text: str) -> None:
    (tmp_path / "s.toml").write_text("# a comment\n" + text)
    message = refused(stompica("config", "check", "s.toml"))
    line = text.count("\n") + 1 if text.startswith("port = 1") else 2
    assert message.startswith(f"s.toml line {line}: not TOML: ")


def test_a_file_that_cannot_be_read_is_refused(stompica: CommandLine, tmp_path: Path) -> None:
    assert refused(stompica("config=none.toml")) == (
        "setting 'config' (value 'none.toml', command line): can't read the file: No such file or directory"
    )
    assert refused(stompica("config", "check", ".")) == (
        "setting 'config' (value '.', command line): can't read the file: Is a directory"
    )
    assert refused(stompica("config", "check", "no\nne")) == (
        "setting 'config' (value 'no\\nne', command line): can't read the file: No such file or directory"
    )
    (tmp_path / "\udcff.toml").write_text("port = 0\n")
    for arguments in (["config", "check", "\udcff.toml"], ["-C", "\udcff.toml"]):
        assert refused(stompica(*arguments)) == ("setting 'config' (value '\\udcff.toml', command line): must be UTF-8")
    (tmp_path / "s.toml").write_bytes(b"host = '\xff'")
    assert refused(stompica("config", env={"STOMPICA_CONFIG": "s.toml"})) == (
        "setting 'config' (value 's.toml', STOMPICA_CONFIG): can't read the file: not UTF-8"
    )


def test_config_check_takes_one_file(stompica: CommandLine) -> None:
    message = "'stompica config check FILE' takes the name of one settings file"
    assert refused(stompica("config", "check")) == message
    assert refused(stompica("config", "check", "a", "b")) == message
    assert refused(stompica("config", "check", "a", "port=1")) == message


STOMPSERVER = """\
---
# as stompserver ships it
:daemon: false
:working_dir: .
:storage: .stompserver
:queue: memory
:auth: false
:debug: false
:group:
:host: 127.0.0.2
:port: 61614
:checkpoint: 0
"""


def test_a_stompserver_yaml_file_is_read(stompica: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "stompserver.conf").write_text(STOMPSERVER)
    shown = effective(stompica("config", "-C", "stompserver.conf"))
    assert (shown["port"], shown["host"], shown["dir"], shown["store"]) == (
        61614,
        "127.0.0.2",
        ".stompserver",
        "memory",
    )
    assert effective(stompica("config", "-C", "stompserver.conf", "-p", "1"))["port"] == 1


def test_yaml_that_enables_a_missing_feature_is_refused(stompica: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "s.yml").write_text(":auth: true\n")
    assert refused(stompica("-C", "s.yml")).startswith("setting 'auth' (value 'true', s.yml line 1): not built yet")


def test_a_file_is_read_only_when_named(stompica: CommandLine, tmp_path: Path) -> None:
    for name in ("stompica.toml", "stompserver.conf"):
        (tmp_path / name).write_text("this is no settings file\n")
    assert effective(stompica("config"))["port"] == 61613


def test_relative_names_are_relative_to_the_working_folder(stompica: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "s.toml").write_text("port = 7\n")
    assert effective(stompica("config", "-w", "etc", "-C", "s.toml"))["port"] == 7
    assert refused(stompica("config", "-w", "none")) == (
        "setting 'working_dir' (value 'none', command line): must be a folder that exists"
    )
    (tmp_path / "etc" / "s.toml").write_text("\nworking_dir = 'none'\n")
    assert refused(stompica("config", "check", "etc/s.toml")) == (
        "setting 'working_dir' (value 'none', etc/s.toml line 2): must be a folder that exists"
    )


def test_the_environment_can_name_the_file(stompica: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("port = 7\n")
    assert effective(stompica("config", env={"STOMPICA_CONFIG": "s.toml"}))["port"] == 7
