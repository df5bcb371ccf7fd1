"""`planner inspect` on logs: what is read as what, beside independent counts; speed; memory.

`python -m bench.logs [--of CHECKOUT]` makes look-alikes of public logs (`bench.lookalikes`), counts
them with pandas, and plans for two GPUs with what was counted; with a checkout of another version,
also what that one makes of `pandas.read_csv(f).to_parquet()`. `python -m bench.logs --large FOLDER`
makes 10, 20 and 100 million rows there, counts them with pyarrow and with `planner inspect`, and
removes them. Results go to `bench/results/logs.json`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.documented import ROOT
from bench.lookalikes import LOOKALIKES, Lookalike
from planner.show.format import count, duration, memory

RESULTS = ROOT / "bench" / "results" / "logs.json"
_PLAN = ("--gpus", "2", "--hardware", "a100-sxm-80gb", "--max-plans", "200", "--baseline", "none")
_DIM = "64"
_PIECE = 1_000_000
_USES = ("import json, resource, sys; u = resource.getrusage(resource.RUSAGE_SELF); "
         "print(json.dumps({'cpu_time': u.ru_utime + u.ru_stime, "
         "'peak_bytes': u.ru_maxrss * 1024}))")  # fmt: skip


def main() -> None:
    """Run one part, and put it beside the others."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--of", type=Path, help="a checkout of the version before")
    arguments.add_argument("--large", type=Path, help="a folder with 2 GB left")
    given = arguments.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}",
        "date": datetime.now(tz=UTC).isoformat(timespec="minutes"),
        "commit": _commit(),
    }
    if given.large is None:
        with tempfile.TemporaryDirectory() as folder:
            results["logs"] = [_judged(each, Path(folder), given.of) for each in LOOKALIKES]
    else:
        results["large"] = [_large(given.large, millions) for millions in (10, 20, 100)]
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def _judged(log: Lookalike, folder: Path, old: Path | None) -> dict[str, Any]:
    """Return what is made of a look-alike: kinds, the largest error of a count, and plans."""
    path = log.make(folder)
    found = _planner(ROOT, "inspect", path, "--json", "--embedding-dim", _DIM)
    frame = frame_of(log, path)
    kinds = [column["kind"] for column in found["columns"]]
    right, wanted = right_kinds(log, kinds), log.kinds.split()
    names = [column["name"] for column in found["columns"]]
    errors = [
        error_of(table, frame.iloc[:, names.index(table["name"])], log, found["batch_samples"])
        for table in found["tables"]
    ]
    result = {
        "log": log.of,
        "file": log.file,
        "kinds": kinds,
        "columns_right": f"{right} of {len(wanted)}",
        "largest_error": max(errors),
        "after": _plan(ROOT, path, folder),
    }
    if old is not None:
        frame.columns = [str(name) for name in frame.columns]
        frame.to_parquet(folder / "before.parquet")
        result["before_raw"] = _plan(old, path, folder)
        result["before_parquet"] = _plan(old, folder / "before.parquet", folder)
    print(result, flush=True)
    return result


def right_kinds(log: Lookalike, kinds: Sequence[str]) -> int:
    """Return how many columns are taken for what they are; all that is no table is alike."""
    tables = {"ids", "raw_ids", "category", "sequence"}
    found = [kind.replace(" ", "_") for kind in kinds]
    wanted = ["raw_ids" if kind == "raw" else kind for kind in log.kinds.split()]
    return sum(
        got == kind if kind in tables else got not in tables
        for got, kind in zip(found, wanted, strict=True)
    )


def frame_of(log: Lookalike, path: Path) -> Any:  # noqa: ANN401 - pandas has no types
    """Return the log as pandas reads it."""
    import pandas as pd

    if path.suffix == ".json":
        return pd.read_json(path, lines=True)
    return pd.read_csv(
        path,
        sep=log.separator,
        header=0 if log.header else None,
        encoding=log.encoding,
        engine="python" if len(log.separator) > 1 else "c",
    )


def error_of(table: Mapping[str, Any], column: Any, log: Lookalike, batch: int) -> float:  # noqa: ANN401 - a pandas.Series
    """Return the largest relative difference of a table's numbers from a count by pandas.

    Counted are ids a sample, distinct ids, the hottest one's share, and distinct ones of a batch.
    """
    if log.lists and column.astype(str).str.contains(log.lists, regex=False).any():
        column = column.str.split(log.lists).explode()
    kept = column.dropna()
    if kept.dtype.kind in "if":
        kept = kept[kept >= 0]
    hits = kept.value_counts()
    whole = table["num_samples"] // batch if table["num_samples"] >= batch else 1
    batches = [
        kept[(kept.index >= start * batch) & (kept.index < (start + 1) * batch)].nunique()
        for start in range(whole)
    ]
    pairs = [
        (table["pooling_factor"], len(kept) / table["num_samples"]),
        (table["num_distinct"], len(hits)),
        (table["hot_rows"][0]["lookup_share"], hits.max() / hits.sum()),
        (table["unique_rows"], float(np.mean(batches))),
    ]
    return max(abs(float(ours / theirs) - 1) for ours, theirs in pairs)


def _plan(checkout: Path, path: Path, folder: Path) -> str:
    """Return memory and step of the plan for two GPUs, or why there is none."""
    workload = folder / "w.yaml"
    workload.unlink(missing_ok=True)
    for words in (
        ("inspect", path, "--embedding-dim", _DIM, "-o", workload, "--json"),
        ("plan", workload, *_PLAN, "--json"),
    ):
        data = _planner(checkout, *words)
        if "error" in data:
            said = data["error"]["message"].splitlines()[0].replace(f"{folder}/", "")
            return f"{words[0]}: {said[:120]}"
        if words[0] == "inspect":
            tables = data["tables"]
    size = sum(table["num_embeddings"] for table in tables) * int(_DIM) * 4
    step = data["expected_step_time_s"]
    return f"{count(len(tables), 'table')}, {memory(size)}, {duration(step)}"


def _planner(checkout: Path, *words: object) -> dict[str, Any]:
    """Return what a command of a checkout's planner prints as JSON."""
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-m", "planner", *map(str, words)],
        cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _large(folder: Path, millions: int) -> dict[str, Any]:
    """Return time and memory of counting so many rows of five columns, by pyarrow and by us."""
    path = folder / f"{millions}.parquet"
    _write(path, millions)
    try:
        result: dict[str, Any] = {"rows": millions * _PIECE, "file_bytes": path.stat().st_size}
        result["inspect"] = _measured(
            f"from planner.inspection.inspect import inspect; inspect({str(path)!r})"
        )
        if millions <= 20:
            result["pyarrow"] = _measured(
                f"import pyarrow.dataset as d; t = d.dataset({str(path)!r}).to_table(); "
                "[t.column(name).value_counts() for name in t.column_names]"
            )
    finally:
        path.unlink()
    print(result, flush=True)
    return result


def _write(path: Path, millions: int) -> None:
    """Write a log of five columns of ids: even and Zipf's, from 300 to 50 million rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    writer = None
    for _ in range(millions):
        table = pa.table(
            {name: ids.astype(np.int32) for name, ids in _columns(random)},
        )
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()


def _columns(random: np.random.Generator) -> Iterator[tuple[str, Any]]:
    yield "user", random.integers(0, 50_000_000, _PIECE)
    yield "item", random.zipf(1.2, _PIECE) % 2_000_000
    yield "category", random.zipf(1.4, _PIECE) % 5000
    yield "site", random.integers(0, 300, _PIECE)
    yield "ad", random.zipf(1.1, _PIECE) * 7919 % 10_000_000


def _measured(code: str) -> dict[str, float]:
    """Return seconds, CPU seconds and peak memory of a Python program."""
    started = os.times().elapsed
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", f"{code}\n{_USES}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    used: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {"time": os.times().elapsed - started, **used}


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - the developer's git
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def table(results: Mapping[str, Any]) -> str:
    """Return what is read as what, and what large logs take, for pages."""
    lines = [
        "| looks like | columns right | off by | before, as Parquet | after |",
        "|---|---|---|---|---|",
        *(
            f"| {each['log']}, `{each['file']}` | {each['columns_right']} | "
            f"{each['largest_error']:.1%} | {each['before_parquet']} | {each['after']} |"
            for each in results["logs"]
        ),
        "",
        "| rows of five columns | `inspect` | its memory | pyarrow, `value_counts` | its memory |",
        "|---|---|---|---|---|",
        *map(_large_line, results["large"]),
    ]
    return "\n".join(lines)


def _large_line(each: Mapping[str, Any]) -> str:
    cells = [f"{each['rows'] / 1e6:.0f} M"]
    for name in ("inspect", "pyarrow"):
        used = each.get(name)
        cells += [
            f"{used['time']:.1f} s, {used['cpu_time']:.1f} of CPU" if used else "",
            f"{used['peak_bytes'] / 1e9:.2f} GB" if used else "",
        ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
