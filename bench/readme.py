"""Put committed results into the pages that quote them: `python -m bench.readme [--screen]`.

Text between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` is generated: tables from
``bench/results/*.json``, and with ``--screen`` the screen of the first command and what the
commands of the tutorial print, by running them. A test checks that the tables are those of the
committed results.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import accuracy_tables as tables
from bench import cpu_study
from bench.documented import run_page, with_outputs
from bench.plan_quality import medians
from bench.table_iii import TABLE_III
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
TUTORIAL = PAGES[-1]
SCREEN = ("plan", "bench/workloads/dlrm_dcnv2.yaml", "--gpus", "8")
AS_INSTALLED = {"PLANNER_BASELINE": "torchrec_greedy"}
"""Settings of what is shown: without TorchRec, as the first command of the README installs."""
MEASURED_BEFORE = {"plan_quality": "30d5733"}
"""Results that do not say which code was measured, and the commit that has them."""


def result(name: str) -> Any:  # noqa: ANN401 -- JSON
    """Return a committed result."""
    return json.loads((ROOT / f"bench/results/{name}.json").read_text(encoding="utf-8"))


def measured(name: str) -> str:
    """Return the line that says where, when and of which code results are."""
    found = result(name)
    places = [each for each in (found, *found.values()) if isinstance(each, dict)]

    def all_of(key: str) -> str:
        return ", ".join(dict.fromkeys(str(each[key]) for each in places if each.get(key)))

    commits = all_of("commit")
    code = f"the code of commit {commits}"
    if not commits:
        code = f"code no younger than commit {MEASURED_BEFORE[name]}"
    return f"\n\nMeasured {all_of('date')} ({all_of('machine')}) with {code}."


def published_steps() -> str:
    """Return the table of predicted beside published steps."""
    lines = [
        "| framework | GPUs | precision | published | predicted | error |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['framework']} | {row['num_gpus']} × {row['gpu'].split('-')[0]} "
        f"| {row['precision']} | {row['measured_s'] / MS:.2f} ms "
        f"| {row['predicted_s'] / MS:.2f} ms | {row['error']:+.1%} |"
        for row in result("published_steps")
    ]
    return "\n".join(lines)


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
    overall = result("replay")["overall"]
    lines = ["| | mean step | worst step |", "|---|---|---|"]
    lines += [
        f"| {text} | {overall[name]['mean_step']:.2%} | {overall[name]['worst_step']:.1%} |"
        for name, text in shown.items()
    ]
    return "\n".join(lines)


def coverage() -> str:
    """Return the table of how often 90% intervals hold."""
    return tables.intervals(result("coverage"))


def plan_quality() -> str:
    """Return the table of plan quality after ten CPU seconds: step times in ms, and the bound."""
    columns = (
        "auto", "annealing", "lp", "tuned_greedy", "beam", "optuna", "ilp", "cost_greedy",
        "torchrec_greedy",
    )  # fmt: skip
    lines = [
        "| tables x GPUs | bound | " + " | ".join(columns) + " | best of Table III |",
        "|---" * (len(columns) + 3) + "|",
    ]
    for name, instance in result("plan_quality").items():
        steps = medians(instance["runs"], 10)
        classic = min(steps[each] for each in TABLE_III if each in steps)
        cells = [instance["bound_s"], *(steps.get(each) for each in columns), classic]
        shown = ("none" if cell is None else f"{cell / MS:.2f}" for cell in cells)
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + measured("plan_quality")


def accuracy_collectives() -> str:
    """Return the table of collectives on held-out sizes."""
    return tables.collectives_short(result("accuracy")["collectives"])


def accuracy_table_i() -> str:
    """Return the paper's Table I beside ours."""
    return tables.table_i(result("accuracy"))


def accuracy_steps() -> str:
    """Return the table of whole steps, as the paper sums them up."""
    return tables.table_ii(result("accuracy")["steps"])


def torchrec_speed() -> str:
    """Return the table of CPU seconds and step times beside TorchRec's planner."""
    columns = "bound | TorchRec's plan | its CPU time | auto: ahead after | after 1 s | after 10 s"
    lines = [f"| tables x GPUs | {columns} |", "|---" * 7 + "|"]
    for name, instance in result("torchrec_speed").items():
        theirs = next(run for run in instance["runs"] if run["sharder"] == "torchrec")
        ours = {run["seconds"]: run for run in instance["runs"] if run["sharder"] == "auto"}
        ahead = [run["better_after_s"] for run in ours.values() if run["better_after_s"]]
        cells = [
            f"{instance['bound_s'] / MS:.2f} ms",
            f"{theirs['step_s'] / MS:.2f} ms",
            f"{theirs['cpu_s']:.2f} s",
            f"{max(ahead):.2f} s" if ahead else "never",
            *(f"{ours[budget]['step_s'] / MS:.2f} ms" for budget in (1, 10)),
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + measured("torchrec_speed")


def search() -> str:
    """Return the line on the search that is drawn."""
    found = result("search")
    ahead = found["step_s"] / found["bound_s"] - 1
    return (
        f"`planner plan bench/workloads/{found['workload']} --gpus {found['gpus']}`, seed "
        f"{found['seed']}: {found['plans']:,} plans in {found['cpu_s']:.0f} CPU seconds, "
        f"{found['step_s'] / MS:.1f} ms, {ahead:.1%} over the bound "
        f"(`python -m bench.search_figure`).{measured('search')}"
    )


def nlp() -> str:
    """Return the table of language models predicted from execution traces."""
    found = result("nlp")
    lines = [
        "| model | batch | optimizer | measured | spread | predicted | error |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['model']} | {row['local_batch_size']} | {row['optimizer']} "
        f"| {row['measured_s'] / MS:.1f} ms | {row['spread']:.0%} "
        f"| {row['predicted_s'] / MS:.1f} ms | {row['error']:+.1%} |"
        for row in found["rows"]
    ]
    paper = f"{found['geomean_of_paper']:.2%}"
    lines.append(
        f"| geometric mean | | | | | | {found['geomean_error']:.1%} (the paper's: {paper}) |"
    )
    return "\n".join(lines)


TABLES: Mapping[str, Callable[[], str]] = {
    "published_steps": published_steps,
    "replay": replay,
    "nlp": nlp,
    "coverage": coverage,
    "plan_quality": plan_quality,
    "torchrec_speed": torchrec_speed,
    "search": search,
    "cpu_study": cpu_study.table,
    "accuracy_collectives": accuracy_collectives,
    "accuracy_table_i": accuracy_table_i,
    "accuracy_steps": accuracy_steps,
}


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
    command = [sys.executable, "-m", "planner", *SCREEN, "-o", "/dev/null"]
    done = subprocess.run(  # noqa: S603 -- our own command
        command, cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ | AS_INSTALLED
    )
    return f"```text\n$ planner {' '.join(SCREEN)}\n{done.stdout}```"


def fill(blocks: Mapping[str, str]) -> None:
    """Replace the named blocks on all pages."""
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")


def main() -> None:
    """Rewrite the pages."""
    blocks = {name: table() for name, table in TABLES.items()}
    if "--screen" in sys.argv:
        blocks["screen"] = screen()
        text = TUTORIAL.read_text(encoding="utf-8")
        with TemporaryDirectory() as folder:
            ran = run_page(text, Path(folder), AS_INSTALLED)
        TUTORIAL.write_text(with_outputs(text, ran), encoding="utf-8")
    fill(blocks)


if __name__ == "__main__":
    main()
