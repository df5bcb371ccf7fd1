"""What Lin et al. (arXiv 2404.12674) and their repository report, to stand beside ours.

Other machines, other measurements: beside, not against.
"""

from collections.abc import Mapping
from typing import NamedTuple

TABLE_I: Mapping[str, Mapping[str, float]] = {
    "4 x GV100": {
        "all_to_all": 0.0628,
        "all_reduce": 0.0635,
        "embedding_forward": 0.0437,
        "embedding_backward": 0.0308,
    },
    "4 x A100": {
        "all_to_all": 0.0525,
        "all_reduce": 0.0498,
        "embedding_forward": 0.0564,
        "embedding_backward": 0.0363,
    },
}
"""GMAE of kernels by machine: the paper's Table I, as a public summary of the paper quotes it (a
reading note of 2026 in Chinese; we have not seen the page itself). Its embedding figures are the
4-6% and 3-4% that we knew from elsewhere, its whole steps the abstract's 5.21%."""
ON: Mapping[str, str] = {"4 x V100, DGX-1": "4 x GV100", "A100, NVSwitch": "4 x A100"}
"""Our platforms whose GPUs the paper's table has."""


class UnevenError(NamedTuple):
    """Errors of one rule for the size of an uneven all-to-all."""

    gmae: float
    mape: float
    std: float


UNEVEN_SOURCE = "owensgroup/ml_perf_model@c4d8fd34 analysis/notebooks/comm_bench.ipynb, 2023-02-13"
UNEVEN: Mapping[str, UnevenError] = {
    "largest sent or received of any rank (max of max)": UnevenError(0.0536, 0.0743, 0.0493),
    "mean over ranks (the plain size)": UnevenError(0.0674, 0.1044, 0.0868),
    "largest sent plus received of any rank (max of sum)": UnevenError(0.0885, 0.1178, 0.0701),
}
"""Printed by the authors' notebook, for thousands of random splits of tables over four V100 of a
DGX-1 (``all_to_allv``), each predicted by their sigmoid of the even all-to-all."""
