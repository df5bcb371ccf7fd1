"""The results of `bench.accuracy` as Markdown tables."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median_high
from typing import Any

from bench import paper
from bench.cpu_coverage import OTHER_WORKLOADS
from costmodel.base.units import MS, US

PAPER = (
    "The paper's Table I (GMAE, as a public summary of it quotes them) is of its own machines, "
    "software and data, and has no other operations. Its whole steps are off by 5.21% in "
    "geometric mean (abstract), with kernels and host overheads measured on the same machine."
)
NAMES = {
    "alpha_beta": "alpha-beta",
    "paper_rules": "paper, its rules",
    "paper_sigmoid": "paper, searched",
    "two_lines": "2 lines",
    "three_lines": "3 lines",
    "log_pchip": "PCHIP",
    "lines_and_residual": "3 lines + PCHIP",
}
Results = Mapping[str, Any]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share in percent."""
    return "-" if share is None else f"{100 * share:.{digits}f}"


def collectives(results: Results) -> str:
    """Return hold-out errors by platform and operation."""
    header = ["platform", "op", "curves", "points", *NAMES.values(), "**chosen**", "worst",
              "repeats", "GMAE", "alpha-beta's", "Table I's"]  # fmt: skip
    rows = [
        [
            row["platform"], row["op"], str(row["curves"]), str(row["points"]),
            *(percent(row["mape"][form]) for form in NAMES), f"**{percent(row['chosen_mape'])}**",
            percent(row["worst_mape"]), percent(row["repeat"]), percent(row["chosen_gmae"]),
            percent(row["gmae"]["alpha_beta"]), percent(_table_i(row["platform"], row["op"])),
        ]
        for row in results["by_platform"]
    ]  # fmt: skip
    total = results["overall"]
    last = [
        "all but flagged", "", str(total["curves"]), f"{total['points']:,}",
        *(percent(total["mape"][form]) for form in NAMES), f"**{percent(total['chosen_mape'])}**",
        percent(total["worst_mape"]), "", percent(total["chosen_gmae"]),
        percent(total["gmae"]["alpha_beta"]), "-",
    ]  # fmt: skip
    return table(header, [*rows, last])


def _table_i(platform: str, op: str) -> float | None:
    return paper.TABLE_I[paper.ON[platform]].get(op) if platform in paper.ON else None


def table_i(results: Results) -> str:
    """Return the paper's Table I beside the same kinds of kernels here, as far as there are any."""
    curves = {(row["platform"], row["op"]): row for row in results["collectives"]["by_platform"]}
    network = results["learned"]["models"][results["learned"]["best"]]
    core = {f"embedding_{phase}": found["gmae"] for phase, found in network.items()}
    header = ["GMAE, %", *(f"Table I, {name}" for name in paper.TABLE_I), *paper.ON, "a CPU core"]
    rows = []
    for kind in next(iter(paper.TABLE_I.values())):
        own = [curves.get((platform, kind)) for platform in paper.ON]
        rows.append([
            kind.replace("_", " "),
            *(percent(errors[kind], 2) for errors in paper.TABLE_I.values()),
            *(percent(row["chosen_gmae"] if row else None, 2) for row in own),
            percent(core.get(kind), 2),
        ])
    return table(header, rows)


def uneven_authors() -> str:
    """Return what the paper's authors found of each rule."""
    return table(
        ["authors, 4 x V100", "GMAE", "MAPE", "standard deviation"],
        ([name, *(percent(error, 2) for error in errors)] for name, errors in paper.UNEVEN.items()),
    )


def collectives_short(results: Results) -> str:
    """Return hold-out MAPE by platform, the four operations side by side."""
    ops = ("all_to_all", "all_reduce", "reduce_scatter", "all_gather")
    platforms: dict[str, dict[str, Any]] = {}
    for row in results["by_platform"]:
        platforms.setdefault(row["platform"], {})[row["op"]] = row
    header = ["held-out MAPE, %", *(op.replace("_", "-") for op in ops), "alpha-beta",
              "paper, its rules", "paper, searched"]  # fmt: skip
    rows = []
    for platform, by_op in platforms.items():
        cells = [percent(by_op[op]["chosen_mape"]) if op in by_op else "-" for op in ops]
        others = [
            percent(median_high(row["mape"][form] for row in by_op.values()))
            for form in ("alpha_beta", "paper_rules", "paper_sigmoid")
        ]
        rows.append([platform, *cells, *others])
    return table(header, rows)


def extrapolation(results: Results) -> str:
    """Return errors above the largest size that the forms were given."""
    limits = results["extrapolated"]
    header = ["given up to", *NAMES.values()]
    rows = [[limit, *(percent(errors[form]) for form in NAMES)] for limit, errors in limits.items()]
    return table(header, rows)


def ranks(results: Results) -> str:
    """Return errors on a number of ranks that was held out."""
    header = ["platform", "held out", "cases", "MAPE", "median from 1 MiB", "worst MAPE"]
    return table(
        header,
        (
            [
                row["platform"], f"{row['held_out']} the others", str(row["cases"]),
                percent(row["mape"]), percent(row["large"]), percent(row["worst_mape"]),
            ]
            for row in results["ranks"]
        ),
    )  # fmt: skip


def nodes(results: Results) -> str:
    """Return errors across nodes."""
    return table(
        ["H100 nodes, 400 Gb/s per GPU, from 32 MiB", "median signed error"],
        ([name, f"{100 * error:+.1f}"] for name, error in results["nodes"].items()),
    )


def uneven(results: Results) -> str:
    """Return uneven all-to-alls beside what each rule predicts."""
    rows = results["uneven"]
    if not rows:
        return "No uneven all-to-all with recorded sizes."
    rules = list(rows[0]["predicted_s"])
    return table(
        ["largest rank", "mean rank", "measured, us", *rules],
        (
            [
                f"{row['largest_bytes']:,.0f} B", f"{row['mean_bytes']:,.0f} B",
                f"{row['measured_s'] / US:.1f}",
                *(f"{row['predicted_s'][rule] / US:.1f}" for rule in rules),
            ]
            for row in rows
        ),
    )  # fmt: skip


def uneven_gloo(results: Results) -> str:
    """Return what each rule misses on uneven all-to-alls of CPU ranks."""
    kept = results.get("uneven_gloo")
    if not kept:
        return ""
    return table(
        [f"{kept['cases']} cases, {kept['machine']}", "MAPE", "median signed error"],
        (
            [name, percent(row["mape"]), f"{100 * row['bias']:+.1f}"]
            for name, row in kept["rules"].items()
        ),
    )


def gemm(results: Results) -> str:
    """Return errors of matrix products."""
    header = ["profile", "type", "held out", "products", "median", "MAPE", "GMAE",
              "MAPE < 1 GFLOP", "1-100", "> 100"]  # fmt: skip
    return table(
        header,
        (
            [
                row["profile"], row["data_type"], row["held_out"], f"{row['num_held_out']:,}",
                percent(row["median"]), percent(row["mape"]), percent(row["gmae"]),
                *(percent(row["mape_by_size"][size]) for size in ("small", "medium", "large")),
            ]
            for row in results["gemm"]
        ),
    )  # fmt: skip


def dense(results: Results) -> str:
    """Return errors of the kernels between the products, on two profiled V100 steps."""
    header = ["V100 kernels", "number", "median error", "MAPE", "largest, us", "its error"]
    rows = [
        [
            row["kind"] + (" (fitted)" if row["fitted"] == row["kernels"] else ""),
            str(row["kernels"]), percent(row["median_error"]), percent(row["mape"]),
            f"{row['largest_s'] / US:.0f}", f"{100 * row['error_of_largest']:+.0f}",
        ]
        for row in results["dense"]["by_kind"]
    ]  # fmt: skip
    return table(header, rows)


def embedding(results: Results) -> str:
    """Return errors of the roofline on embedding anchors."""
    header = ["GPU", "rows are", "phase", "rows", "median", "MAPE", "GMAE"]
    return table(
        header,
        (
            [
                row["gpu"], row["kind"], row["phase"], str(row["rows"]), percent(row["median"]),
                percent(row["mape"]), percent(row["gmae"]),
            ]
            for row in results["embedding"]
        ),
    )  # fmt: skip


def counters(results: Results) -> str:
    """Return predicted bytes of lookups over those that a GPU's counters counted."""
    return table(
        ["V100, bytes predicted over counted", "phase", "rows", "least", "median", "most"],
        (
            [
                row["memory"], row["phase"], str(row["rows"]),
                *(f"{row[name]:.2f}" for name in ("least", "median", "most")),
            ]
            for row in results["counters"]
        ),
    )  # fmt: skip


def learned(results: Results) -> str:
    """Return errors of learned lookups on held-out tables, with and without reuse factors."""
    several = results["several_tables"]
    forms = {
        **results["models"],
        "the last, kernels of several tables": several["learned from all"],
        "sums of its single tables, the same kernels": several["sums of single tables"],
    }
    cells = [(phase, name) for phase in ("forward", "backward") for name in ("gmae", "mape")]
    return table(
        ["held-out tables, a CPU core", *(f"{phase} {name.upper()}" for phase, name in cells)],
        (
            [form, *(percent(found[phase][name]) for phase, name in cells)]
            for form, found in forms.items()
        ),
    )


def one_kernel(results: Results) -> str:
    """Return in words what one kernel of several tables takes over one kernel for each."""
    ratios = results["several_tables"]["measured, one kernel over sum"]
    parts = (
        f"{phase} {ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f}, "
        f"{ratio['kernels']} kernels)"
        for phase, ratio in ratios.items()
    )
    return "One kernel of several tables over the sum of one for each, median: " + ", ".join(parts)


def intervals(found: Results) -> str:
    """Return how often 90% intervals held."""
    kernels, labs, steps = found["kernels"], found["other_labs"], found["steps"]["tests"]
    half, elsewhere = "spread of the other half", "spread of other platforms"
    rows = [
        ("collectives, held-out sizes", half, kernels["collectives"]["own_half"]),
        ("collectives, held-out sizes", elsewhere, kernels["collectives"]["other_platforms"]),
        ("matrix products, held-out shapes", half, kernels["gemm"]["own_half"]),
        ("matrix products, held-out shapes", elsewhere, kernels["gemm"]["other_platforms"]),
        ("lookups on a CPU", "calibration on the other tables", found["cpu_lookups"]["forward"]),
        ("their backward", "the same", found["cpu_lookups"]["backward"]),
        ("collectives, another lab's H100", "profile, and other operations", labs["collectives"]),
        ("matrix products, another lab's GPUs", "profile, and the other GPU", labs["gemm"]),
        ("published steps", "kernels alone", steps["errors of kernels alone"]),
        ("published steps", "kernels, and the other steps", steps["each by all others"]),
        ("published steps", "kernels, and those of other GPUs", steps["by other gpus"]),
        ("steps on CPU cores", OTHER_WORKLOADS, found["cpu_runs"]["tests"][OTHER_WORKLOADS]),
        ("all whole steps", "kernels, and other steps", found["whole_steps"]),
    ]
    return table(
        ["measured", "interval from", "points", "inside"],
        (
            [what, source, f"{data['points']:,}", f"{data['coverage']:.0%}"]
            for what, source, data in rows
        ),
    )


def table_ii(results: Results) -> str:
    """Return whole steps as the paper's Table II sums them up."""
    header = ["steps of", "number", "geomean", "mean", "min", "max"]
    return table(
        header,
        (
            [
                row["set"], str(row["steps"]),
                *(f"{100 * row[name]:.1f}%" for name in ("geomean", "mean", "min", "max")),
            ]
            for row in sorted(results["table_ii"], key=lambda row: row["set"] == "all")
        ),
    )  # fmt: skip


def replays(results: Results) -> str:
    """Return replays of profiled runs with their own durations."""
    header = [
        "replayed run",
        "measured, ms",
        "simulated, ms",
        "makespan",
        "mean step",
        "worst step",
    ]
    return table(
        header,
        (
            [
                row["set"], f"{row['measured_s'] / MS:.2f}", f"{row['predicted_s'] / MS:.2f}",
                f"{100 * row['makespan']:+.2f}%", f"{100 * row['mean_step']:.2f}%",
                f"{100 * row['worst_step']:.2f}%",
            ]
            for row in results["replay"]
        ),
    )  # fmt: skip
