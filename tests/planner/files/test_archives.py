"""Archives and streams: as much as is allowed is read, and one byte or file more is not."""

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.files import archives
from planner.files.archives import (
    BoundedStream,
    DamagedError,
    check_expanded,
    damaged,
    expansion_bound,
    gunzipped,
    open_archive,
)


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> int:
    """What small files may expand to: 1,000 bytes, and large ones to three times theirs."""
    monkeypatch.setattr(archives, "LEAST_BOUND", 1_000)
    monkeypatch.setattr(archives, "MOST_TIMES", 3)
    return 1_000


def zipped(**contents: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in contents.items():
            made.writestr(name, content)
    return data.getvalue()


@pytest.mark.usefixtures("bound")
def test_large_files_may_expand_by_a_factor() -> None:
    assert [expansion_bound(packed) for packed in (5, 333, 334)] == [1_000, 1_000, 1_002]
    check_expanded(1_002, 334)
    with pytest.raises(ValueError, match="expand to more than 1,002 bytes; a file of 334"):
        check_expanded(1_003, 334)


def test_an_archive_has_so_many_files_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_ENTRIES", 2)
    with open_archive(zipped(a=b"1", b=b"23")) as archive:
        assert archive.names == ["a", "b"]
        assert (archive.size("b"), archive.read("b")) == (2, b"23")
    with (
        pytest.raises(ValueError, match="of 3 files; up to 2 can be"),
        open_archive(zipped(a=b"", b=b"", c=b"")),
    ):
        pass


def test_no_two_files_have_one_name() -> None:
    data = zipped(one=b"1", two=b"2").replace(b"two", b"one")
    with pytest.raises(ValueError, match="two files of one name"), open_archive(data):
        pass


def test_entries_expand_to_so_much_together(bound: int) -> None:
    with open_archive(zipped(a=bytes(bound - 1), b=b"1")) as archive:
        assert archive.read("a") == bytes(bound - 1)
    with pytest.raises(ValueError, match="would expand"), open_archive(zipped(a=bytes(bound + 1))):
        pass


def test_a_gzip_stream_expands_to_so_much(bound: int) -> None:
    assert gunzipped(gzip.compress(bytes(bound))) == bytes(bound)
    with pytest.raises(ValueError, match="would expand to more than 1,000 bytes"):
        gunzipped(gzip.compress(bytes(bound + 1)))
    with pytest.raises(DamagedError):
        gunzipped(gzip.compress(bytes(bound))[:-9])


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress, bytes])
def test_a_file_is_unpacked_as_it_is_read(
    pack: Callable[[bytes], bytes], tmp_path: Path, bound: int
) -> None:
    for size in (bound, 3 * bound):
        (tmp_path / "x").write_bytes(pack(bytes(size)))
        with BoundedStream(tmp_path / "x") as stream:
            if size == bound or pack is bytes:
                assert stream.read() == bytes(size)
            else:
                with pytest.raises(ValueError, match="would expand"):
                    stream.read()


def test_a_damage_is_told_in_its_own_words_or_by_its_name() -> None:
    assert str(damaged(EOFError())) == "the file is damaged: EOFError"
    assert str(damaged(OSError("x" * 300))) == f"the file is damaged: {'x' * 200}"
