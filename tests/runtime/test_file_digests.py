"""The digest of a file is that of its content, however little of it was read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sardonyx.compiler import cache
from sardonyx.compiler.cache import ObjectCache
from sardonyx.runtime.saving import file_digests
from sardonyx.runtime.saving.file_digests import READ_ANYWAY, digest, digest_of

LARGE = bytes(range(256)) * (READ_ANYWAY // 256 + 1)
OTHER = LARGE[:1000] + b"!" + LARGE[1001:]
"""As long, and different where no sample is taken."""
ANY_SIZE = 1 << 40
pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="there is no time of the last change here, so contents are always read"
)


@pytest.fixture(autouse=True)
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Which files were read as a whole, in an empty cache where every file is settled."""
    kept = ObjectCache(tmp_path / "cache", 1 << 24)
    monkeypatch.setattr(cache, "shared", lambda: kept)
    monkeypatch.setattr(file_digests, "SETTLED", 0)
    done: list[int] = []
    read = file_digests._read

    def counted(descriptor: int) -> str:
        done.append(descriptor)
        return read(descriptor)

    monkeypatch.setattr(file_digests, "_read", counted)
    yield done


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(LARGE)
    return path


def test_a_large_file_is_read_once(path: Path, reads: list[int]) -> None:
    assert [digest_of(str(path), ANY_SIZE) for _ in range(3)] == [digest(LARGE)] * 3
    assert len(reads) == 1


def test_what_is_known_is_known_of_any_size(path: Path) -> None:
    assert digest_of(str(path), 10) is None
    digest_of(str(path), ANY_SIZE)
    assert digest_of(str(path), 10) == digest(LARGE)


def test_small_files_are_read_each_time(path: Path, reads: list[int]) -> None:
    path.write_bytes(b"small")
    assert [digest_of(str(path), 10) for _ in range(2)] == [digest(b"small")] * 2
    assert len(reads) == 2


@pytest.mark.parametrize("in_place", [True, False], ids=["written again", "replaced"])
def test_another_file_of_the_same_name_size_and_time_is_noticed(path: Path, tmp_path: Path, in_place: bool) -> None:
    digest_of(str(path), ANY_SIZE)
    status = path.stat()
    written = path if in_place else tmp_path / "other"
    written.write_bytes(OTHER)
    os.utime(written, ns=(status.st_atime_ns, status.st_mtime_ns))
    written.replace(path)
    assert path.stat().st_mtime_ns == status.st_mtime_ns and path.stat().st_size == status.st_size
    assert digest_of(str(path), ANY_SIZE) == digest(OTHER)


def test_where_times_lie_samples_tell(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system may say the same of all files."""
    told = file_digests.mapping.FileIdentity(1, 2, len(LARGE), 3, 4)
    monkeypatch.setattr(file_digests.mapping, "identity_of", lambda descriptor: told)
    digest_of(str(path), ANY_SIZE)
    path.write_bytes(LARGE[::-1])
    assert digest_of(str(path), ANY_SIZE) == digest(LARGE[::-1])


@pytest.mark.parametrize("settled", [3600 * 10**9, None], ids=["recent", "in the future"])
def test_in_doubt_the_content_is_read(
    path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch, settled: int | None
) -> None:
    if settled is not None:
        monkeypatch.setattr(file_digests, "SETTLED", settled)
    else:
        later = 4 * 10**18  # nanoseconds, far in the future
        os.utime(path, ns=(later, later))
    for content in (LARGE, OTHER):
        path.write_bytes(content)
        if settled is None:
            os.utime(path, ns=(later, later))
        assert digest_of(str(path), ANY_SIZE) == digest(content)
    assert len(reads) == 2


def test_an_entry_under_the_name_of_another_file_is_not_believed(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(OTHER)
    digest_of(str(path), ANY_SIZE)
    (first,) = [entry[2] for entry in cache.shared().entries()]
    digest_of(str(other), ANY_SIZE)
    (second,) = {entry[2] for entry in cache.shared().entries()} - {first}
    shutil.copy(first, second)
    assert digest_of(str(other), ANY_SIZE) == digest(OTHER)


def test_a_file_that_changes_while_it_is_read_is_not_remembered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = file_digests._read

    def disturbed(descriptor: int) -> str:
        found = read(descriptor)
        path.write_bytes(OTHER)
        return found

    monkeypatch.setattr(file_digests, "_read", disturbed)
    digest_of(str(path), ANY_SIZE)
    assert not cache.shared().entries()


def test_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(OSError):
            digest_of(str(place), ANY_SIZE)
