"""Put committed results into the pages that quote them: `python -m bench.readme [--screen]`.

Text between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is generated: tables from
``bench/results/*.json``, and with ``--screen`` the screen of the first command and what the
commands of other pages print, by running them. A test checks that the tables are those of the
committed results.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench import (
    accuracy,
    clients_table,
    coverage,
    cpu_study,
    peers,
    scale,
    search_population,
    small_optima,
    sweep_backends,
    torchrec_times,
)
from bench.choice import mean_regrets
from bench.documented import QUICK, run_page, with_outputs
from bench.kept import markdown, write
from costmodel.base.units import MS

ROOT = Path(__file__).parents[1]
PAGES = (
    ROOT / "README.md",
    ROOT / "bench" / "README.md",
    ROOT / "sharders" / "README.md",
    ROOT / "docs" / "screen.md",
    ROOT / "docs" / "tutorial.md",
)
"""Pages with generated text."""
SHOWING = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if "<!-- begin output -->" in path.read_text(encoding="utf-8")
]
"""Pages that show what their commands print."""
SCREEN = ("plan", "bench/workloads/dlrm_dcnv2.yaml", "--gpus", "8", "-o")
COMMITS = "commits"
"""The file that says which commit has those results that do not say what code they are of."""


def result(name: str) -> Any:  # noqa: ANN401 -- JSON
    """Return a committed result."""
    return json.loads((ROOT / f"bench/results/{name}.json").read_text(encoding="utf-8"))


def facts(name: str, key: str) -> list[str]:
    """Return what results say of themselves, as a whole or part by part."""
    found = result(name)
    parts = [found, *found.values()] if isinstance(found, dict) else []
    values = (part.get(key) for part in parts if isinstance(part, dict))
    return list(dict.fromkeys(value for value in values if isinstance(value, str)))


def origin(name: str) -> str:
    """Return the line that says when, where and of which code results are."""
    commits = facts(name, "commit")
    code = f"code of commit {', '.join(commits)}"
    if not commits:
        code = f"kept in commit {result(COMMITS)[name]}"
    machines = "; ".join(facts(name, "machine"))
    days = (date.partition("T")[0] for date in facts(name, "date"))
    told = [*(day for day in dict.fromkeys(days) if day not in machines), machines, code]
    return f"`bench/results/{name}.json`: {'; '.join(filter(None, told))}."


def block(name: str) -> str:
    """Return a table, and what it is of."""
    return f"{TABLES[name]()}\n\n{origin(RESULTS_OF.get(name, name))}"


def note_commits() -> None:
    """Note which commit has the results that do not say what code they are of."""
    noted = {}
    for name in sorted({RESULTS_OF.get(name, name) for name in TABLES}):
        if facts(name, "commit"):
            continue
        path = f"bench/results/{name}.json"
        log = subprocess.run(  # noqa: S603 -- our own file's name
            ["git", "log", "-1", "--abbrev=7", "--format=%h", "--", path],  # noqa: S607 - the developer's git
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        noted[name] = log.stdout.strip()
    write(ROOT / f"bench/results/{COMMITS}.json", noted)


def published_steps() -> str:
    """Return the table of predicted beside published steps."""
    head = "framework", "GPUs", "precision", "published", "predicted", "error"
    rows = [
        (
            row["framework"],
            f"{row['num_gpus']} × {row['gpu'].split('-')[0]}",
            row["precision"],
            f"{row['measured_s'] / MS:.2f} ms",
            f"{row['predicted_s'] / MS:.2f} ms",
            f"{row['error']:+.1%}",
        )
        for row in result("published_steps")
    ]
    return markdown(head, rows)


def replay() -> str:
    """Return the table of replayed runs: our graph, the paper's algorithm, ablations."""
    shown = {
        "graph": "graph (ours)",
        "algorithm1": "the paper's Algorithm 1",
        "baseline": "busiest stream",
        "no inter-rank synchronization": "without inter-rank synchronization",
        "no comm-to-compute waits": "without waits of compute for communication",
        "no host blocks": "without the host blocking on the device",
    }
    found = result("replay")
    errors = {text: found["overall"][name] for name, text in shown.items()}
    ours, *others = errors
    order = {ours: errors[ours], "graph, every rank from its trace alone": found["one_rank"]}
    order |= {text: errors[text] for text in others}
    rows = [
        (text, f"{row['mean_step']:.2%}", f"{row['worst_step']:.1%}") for text, row in order.items()
    ]
    return markdown(("", "mean step", "worst step"), rows)


def population() -> str:
    """Return the table of how steps of drawn problems are distributed."""
    return search_population.table(search_population.known_runs(), result("search_population_best"))


def torchrec_speed() -> str:
    """Return the table of CPU seconds and step times beside TorchRec's planner."""
    head = (
        "tables x GPUs", "bound", "TorchRec's plan", "its CPU time", "auto: ahead after",
        "after 1 s", "after 10 s",
    )  # fmt: skip
    rows = []
    for name, instance in result("torchrec_speed").items():
        theirs = next(run for run in instance["runs"] if run["sharder"] == "torchrec")
        ours = {run["seconds"]: run for run in instance["runs"] if run["sharder"] == "auto"}
        ahead = [run["better_after_s"] for run in ours.values() if run["better_after_s"]]
        rows.append((
            name,
            f"{instance['bound_s'] / MS:.2f} ms",
            f"{theirs['step_s'] / MS:.2f} ms",
            f"{theirs['cpu_s']:.2f} s",
            f"{max(ahead):.2f} s" if ahead else "never",
            *(f"{ours[budget]['step_s'] / MS:.2f} ms" for budget in (1, 10)),
        ))
    return markdown(head, rows)


def torchrec_port() -> str:
    """Return how many plans of TorchRec's planner its port makes, too, and in what time."""
    rows = result("torchrec_port").values()
    made = [row for row in rows if "step_s" in row["theirs"] or "step_s" in row["ours"]]
    same = sum(not row["different"] for row in made)
    cut = sum(row["cut"] for row in made)
    tables, gpus = ([row[key] for row in rows] for key in ("tables", "gpus"))
    theirs, ours = ([row[who]["cpu_s"] for row in rows] for who in ("theirs", "ours"))
    return (
        f"Of {len(rows)} problems of {min(tables)} to {max(tables)} tables on {min(gpus)} to "
        f"{max(gpus)} GPUs, {same} have the same plan, {cut} of them after as many proposals as "
        f"TorchRec's planner makes in a minute, {len(made) - same} another one, and "
        f"{len(rows) - len(made)} has a plan of neither. TorchRec's planner takes "
        f"{median(theirs):.2f} CPU seconds in the median and {max(theirs):.1f} at most, the port "
        f"{median(ours):.2f} and {max(ours):.2f}."
    )


def torchrec_tests() -> str:
    """Return how many tests pass, and why the others do not, as text and a table."""
    results = result("torchrec_tests")
    passed, other = len(results["passed"]), results["not with ours"]
    neither = Counter(results["not with either"].values())
    counts = (
        f"Of {passed + len(other) + neither.total()} tests (TorchRec's commit "
        f"{results['tests_of'][:8]}, torchrec {results['versions']['torchrec']}), {passed} pass, "
        f"{neither['skipped']} are skipped without GPUs, {neither['failed']} fail with either "
        f"planner, and {len(other)} cannot pass with this one:"
    )
    rows = [(f"`{name.rpartition('/')[2]}`", why) for name, why in other.items()]
    return f"{counts}\n\n{markdown(('test', 'why'), rows)}"


def choice() -> str:
    """Return the table of what choices regret."""
    keys = ("ours", "point_optimal", "torchrec", "best_expected")
    head = (
        "workload", "GPUs", "chosen", "lookups, memory: max / mean", "P(faster)", "regret",
        "shortest predicted", "TorchRec's", "least",
    )  # fmt: skip
    rows: list[tuple[object, ...]] = []
    records = result("choice")
    for name, row in records.items():
        regrets = [row["regret"].get(key) for key in keys]
        odds = row["probability_faster"]
        rows.append((
            name,
            row["gpus"],
            row["plan"],
            f"{row['lookups_max_over_mean']:.2f}, {row['memory_max_over_mean']:.2f}",
            "-" if odds is None else f"{odds:.0%}",
            *(f"{r['mean']:.1%}, {r['p95']:.1%}" if r else "-" for r in regrets),
        ))
    means = mean_regrets(records)
    least = means["best_expected"]
    nothing = ("",) * 4
    rows.append(("mean", *nothing, *(f"{means[key]:.1%}" for key in keys)))
    rows.append(("mean above the least", *nothing, *(f"{means[key] - least:.2%}" for key in keys)))
    return markdown(head, rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "choice": choice,
    "scale": lambda: scale.table(result("scale")),
    "published_steps": published_steps,
    "replay": replay,
    "coverage": lambda: coverage.table(result("coverage")),
    "search_population": population,
    "torchrec_speed": torchrec_speed,
    "torchrec_port": torchrec_port,
    "torchrec_times": lambda: torchrec_times.table(result("torchrec_times")),
    "torchrec_tests": torchrec_tests,
    "clients": lambda: clients_table.section(result("clients")),
    "cpu_study": cpu_study.table,
    "peers": lambda: peers.table(result("peers")),
    "sweep_backends": lambda: sweep_backends.table(result("sweep_backends")),
    "small_optima": lambda: small_optima.table(result("small_optima")),
    "accuracy_steps": lambda: accuracy.table(result("accuracy")["table_ii"]),
}


RESULTS_OF = {
    "search_population": "search_population_best",
    "accuracy_steps": "accuracy",
}
"""Results that tables of other names are of."""


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """Return a text with the named blocks replaced."""
    for name, content in blocks.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, found, rest = text.partition(begin)
        if found:
            text = f"{before}{begin}{content}\n{end}{rest.partition(end)[2]}"
    return text


def screen() -> str:
    """Return what the first command of the README shows."""
    command = [sys.executable, "-m", "planner", *SCREEN, "/dev/null"]
    done = subprocess.run(  # noqa: S603 -- our own command
        command, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return f"```text\n$ planner {' '.join(SCREEN)} dlrm.json\n{done.stdout}```"


def fill(blocks: Mapping[str, str]) -> None:
    """Replace the named blocks on all pages."""
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")


def main() -> None:
    """Rewrite the pages."""
    note_commits()
    blocks = {name: block(name) for name in TABLES}
    if "--screen" in sys.argv:
        blocks["screen"] = screen()
        for page in SHOWING:
            text = page.read_text(encoding="utf-8")
            with TemporaryDirectory() as folder:
                ran = run_page(text, Path(folder), {}, QUICK)
            page.write_text(with_outputs(text, ran), encoding="utf-8")
    fill(blocks)


if __name__ == "__main__":
    main()
