from pathlib import Path

from bench.kept import read, updated


def test_processes_do_not_overwrite_each_other(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    updated(path, lambda results: results.update(a=1))
    assert updated(path, lambda results: results.update(b=2)) == {"a": 1, "b": 2}
    assert read(path) == {"a": 1, "b": 2}
