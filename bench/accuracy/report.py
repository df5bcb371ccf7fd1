"""The report: every accuracy table, in words where they need some."""

from collections.abc import Mapping
from typing import Any

from bench import accuracy_tables as tables
from bench import paper
from bench.accuracy import anchors, basis

Results = Mapping[str, Any]
Sections = dict[str, tuple[str, str]]
"""By title: what to know about it, and its tables."""

COLLECTIVES = (
    "Hold-out MAPE in %, median over numbers of ranks: alternate sizes held out. `repeats` is how "
    "far rows of one size lie from their median, which no curve can avoid. The last three columns "
    "are geometric means (GMAE): of the chosen form, of alpha-beta, and of the paper's Table I. "
)
TABLE_I = (
    "Ours: collectives on held-out sizes, median over numbers of ranks; lookups by the learned "
    "model on held-out tables. "
)
UNEVEN = (
    "What size an uneven all-to-all counts as. On four V100 with NVLink the paper's rule, the most "
    f"that any rank sends or receives, is the best of three ({paper.UNEVEN_SOURCE}); the model has "
    "it for links with a port per GPU and direction. The one uneven exchange of known splits in "
    "the public traces is too small to tell rules apart. Two CPU ranks with gloo "
    "(`bench.uneven_exchange`, on a busy machine, one run) are different: both directions share "
    "the cores, and all that is sent decides, which is what profiles of CPUs do."
)
DENSE = (
    "Errors in %. The forms of the interaction and the lower triangle were chosen with these rows "
    "in view, and one constant fitted to one of them: no test of them on unseen kernels."
)
LEARNED = (
    "Trained on FBGEMM's kernels on a CPU core (`bench.embedding_model`), whole sets of tables "
    "held out; errors in %. Reuse factors: the 17 bins, or the mean, of a batch. "
)
INTERVALS = (
    "How many measurements that nothing was fitted to lie inside 90% intervals (`bench.coverage`). "
    "Of 12 steps 10 or fewer are inside one time in three where 90% of all would be. The last row "
    "mixes two: intervals of published steps are rather narrow, those of CPU cores too wide, as "
    "their collectives were calibrated on a busy machine."
)


def report(results: Results) -> str:
    """Return all tables."""
    sections = collectives(results) | kernels(results) | steps(results) | measured(results)
    parts = [f"## {title}\n\n{about}\n\n{body}" for title, (about, body) in sections.items()]
    heading = "# Accuracy\n\nWritten by `python -m bench.accuracy`."
    return "\n\n".join([heading, *parts]).replace("\n\n\n\n", "\n\n") + "\n"


def collectives(results: Results) -> Sections:
    """Return what is about collectives."""
    curves, laws = results["collectives"], results["scaling"]
    uneven = (tables.uneven_authors(), tables.uneven(laws), tables.uneven_gloo(laws))
    return {
        "Collectives": (COLLECTIVES + tables.PAPER, tables.collectives(curves)),
        "Beside the paper's Table I": (TABLE_I + tables.PAPER, tables.table_i(results)),
        "Above the largest size given": (
            "Median MAPE in %. PCHIP goes on as a straight line through its last points.",
            tables.extrapolation(curves),
        ),
        "Numbers of ranks held out": ("Errors in %.", tables.ranks(laws)),
        "Several nodes": ("In %.", tables.nodes(laws)),
        "Uneven all-to-all": (UNEVEN, "\n\n".join(each for each in uneven if each)),
    }


def kernels(results: Results) -> Sections:
    """Return what is about kernels."""
    made, learned = results["kernels"], results["learned"]
    return {
        "Matrix products": ("Errors in %.", tables.gemm(made)),
        "Kernels between the products": (DENSE, tables.dense(made)),
        "Lookups": (
            "Errors of the roofline in %; rows of other kernels than the modelled one say so.",
            tables.embedding(made) + "\n\n" + tables.counters(made),
        ),
        "Learned lookups": (f"{LEARNED}{tables.one_kernel(learned)}.", tables.learned(learned)),
    }


def steps(results: Results) -> Sections:
    """Return what is about whole steps."""
    whole = results["steps"]
    worst = "\n".join(f"* {each['text']}" for each in whole["worst"])
    return {
        "Whole steps": (
            "Absolute errors; nothing is tuned on them. " + tables.PAPER,
            tables.table_ii(whole) + "\n\n![steps](figures/steps.png)",
        ),
        "The worst three steps": ("", worst),
        "Intervals": (INTERVALS, tables.intervals(results["intervals"])),
        "Replays": ("Durations are the run's own: this is the simulator's.", tables.replays(whole)),
    }


def measured(results: Results) -> Sections:
    """Return every public measurement."""
    found = results["anchors"]
    return {
        "Lookups on GPUs, left out": (
            f"{anchors.LAUNCHES}\n\n{anchors.launch_table(found)}\n\n{anchors.PLACES}",
            anchors.place_table(found),
        ),
        "What steps rest on": (basis.ABOUT, basis.basis_table(results["basis"])),
        "Anchors": (anchors.ANCHORS, anchors.anchor_table(found)),
    }
