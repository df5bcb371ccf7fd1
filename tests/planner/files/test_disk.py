import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from costmodel.base.errors import InputError
from planner.files import disk as files
from planner.files.disk import check_writable, read_bytes, read_text, user_path, write_text


def message_of(error: pytest.ExceptionInfo[InputError]) -> str:
    return str(error.value)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "täbles\n")
    assert read_text(tmp_path / "a.txt") == "täbles\n"


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfname: a\n")
    assert read_text(tmp_path / "a.txt") == "name: a\n"


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").touch()
    with pytest.raises(InputError, match="no such file") as caught:
        read_text(tmp_path / "table.yaml")
    assert caught.value.problems[0].hint == "did you mean `tables.yaml`?"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04\0\0", "this is a binary file, not text"),
        (b"name: caf\xe9", "this is not a text file (byte 9 is not UTF-8)"),
    ],
)
def test_binary_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_text(tmp_path / "a.yaml")
    assert str(caught.value) == f"{tmp_path / 'a.yaml'}: {message}"


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a directory"):
        read_text(tmp_path)
    with pytest.raises(InputError, match="it is a directory"):
        write_text(tmp_path, "text")


def test_a_missing_directory_is_found_before_work_is_done(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such directory"):
        check_writable(tmp_path / "missing" / "plan.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="permission denied"):
        check_writable(tmp_path / "plan.json")


def test_a_folder_that_may_not_be_changed_is_told_from_one_that_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    with pytest.raises(InputError, match="permission denied"):
        check_writable(tmp_path / "plan.json")
    read_only = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(files.os, "statvfs", lambda _: read_only)
    with pytest.raises(InputError, match="read-only file system"):
        check_writable(tmp_path / "plan.json")


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old", encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.Path, "replace", full)
    with pytest.raises(InputError, match="cannot be written: no space left on device"):
        write_text(target, "new")
    assert target.read_text(encoding="utf-8") == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


def test_permissions_are_those_of_a_new_or_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_text(tmp_path / "new", "text")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "new").chmod(0o640)
    write_text(tmp_path / "new", "more")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for text in ("new", "old"):  # there is no file at first
        write_text(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink()
        assert read_text(tmp_path / "real") == text


def test_devices_are_written_to() -> None:
    write_text("/dev/null", "text")
    assert Path("/dev/null").is_char_device()


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    write_text("-", "text\n")
    assert capsys.readouterr().out == "text\n"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_a_device_without_end_is_not_read_for_ever() -> None:
    with pytest.raises(InputError, match="this file is larger than 1,000 bytes"):
        read_bytes("/dev/zero", most=1_000)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_a_stream_has_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # 64 GiB, what a file may have, cannot be set aside: read(n) would ask for them at once
    monkeypatch.setattr(files, "MOST_STREAMED", 3_000_000)
    with pytest.raises(InputError, match="larger than 3,000,000 bytes"):
        read_bytes("/dev/zero")
    assert read_bytes("/dev/null") == b""


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(files.MOST_BYTES + 1)  # of holes
    with pytest.raises(InputError, match=f"larger than {files.MOST_BYTES:,} bytes, as no file"):
        read_bytes(tmp_path / "large")
    (tmp_path / "small").write_bytes(b"abc")
    assert read_bytes(tmp_path / "small", most=3) == b"abc"


@pytest.mark.parametrize("name", ["x" * 300, f"{'x' * 300}/y"])
def test_a_name_that_is_too_long_is_refused_before_work_is_done(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be written: file name too long"):
        check_writable(tmp_path / name)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None), ({"X": "", "HOME": ""}, None),
        ({"X": "/x", "HOME": "/home/a"}, "/x"), ({"X": "/x"}, "/x"),
        ({"HOME": "/home/a"}, "/home/a/.own"), ({"X": "", "HOME": "/home/a"}, "/home/a/.own"),
    ],
)  # fmt: skip
def test_a_user_s_folder_is_where_a_variable_says_or_in_the_home(
    environment: dict[str, str], expected: str | None
) -> None:
    found = user_path(environment, "X", ".own")
    assert found == (None if expected is None else Path(expected))


def test_a_stream_may_have_all_that_is_allowed() -> None:
    read, written = os.pipe()
    os.write(written, b"x" * 1000)
    os.close(written)
    assert read_bytes(f"/dev/fd/{read}", most=1000) == b"x" * 1000
    os.close(read)
