"""The results of `bench.accuracy` as Markdown tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from costmodel.units import MS, US

PAPER = (
    "The paper's Table I is of other machines and data; what we know of it is the GMAE of its "
    "embedding model, 4-6% forward and 3-4% backward. Its whole steps are off by 5.21% in "
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
    header = ["platform", "op", "curves", "points", *NAMES.values(), "**chosen**", "GMAE", "worst",
              "repeats"]  # fmt: skip
    rows = [
        [
            row["platform"], row["op"], str(row["curves"]), str(row["points"]),
            *(percent(row["mape"][form]) for form in NAMES), f"**{percent(row['chosen_mape'])}**",
            percent(row["chosen_gmae"]), percent(row["worst_mape"]), percent(row["repeat"]),
        ]
        for row in results["by_platform"]
    ]  # fmt: skip
    total = results["overall"]
    last = [
        "all but flagged", "", str(total["curves"]), f"{total['points']:,}",
        *(percent(total["mape"][form]) for form in NAMES), f"**{percent(total['chosen_mape'])}**",
        percent(total["chosen_gmae"]), percent(total["worst_mape"]), "",
    ]  # fmt: skip
    return table(header, [*rows, last])


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
            percent(_middle([row["mape"][form] for row in by_op.values()]))
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


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
