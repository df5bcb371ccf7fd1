"""Our plans of DLRM-DCNv2 beside those of NVIDIA's planner and of EMBark's baseline.

`python -m bench.peers [--write]`. On 8 to 128 H100, with the same global batch on all, and on the
machines, batches and planner settings of NVIDIA's MLPerf submissions (``SUBMITTED``), the step
predicted for TorchRec under

* the plan of ``auto`` within ``SECONDS`` CPU seconds, and the lower bound of all plans,
* rows within nodes everywhere (``table_row_wise``), what EMBark is compared with,
* NVIDIA's ``auto`` and ``hier_auto`` (``hugectr_auto``, ``hugectr_hier_auto``), as nearly as
  TorchRec can have them.

All once with our hosts, and once with hosts that take no time: HugeCTR issues a step as one CUDA
graph with one exchange for all tables, where every sharding type in a TorchRec plan has launches
and collectives of its own. What NVIDIA's runs took is a step of HugeCTR, not of TorchRec.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from bench.kept import SEED, markdown, print_and_keep, provenance
from bench.plan_quality import WORKLOADS, attempt_on
from costmodel.base.units import GB, MS, Bytes, Seconds
from costmodel.bounds.lower_bound import step_time_bound
from costmodel.domain.hardware import HardwareProfile, Topology
from planner.files.profiles import load_profile
from planner.files.workload_reading import load_workload
from sharders.baselines.hugectr_mlperf import HugeCtrAuto
from sharders.baselines.table_row_wise import TableRowWise
from sharders.problem.sharding_problem import Budget, Sharder, ShardingProblem

RESULTS = Path(__file__).parent / "results" / "peers.json"
WORKLOAD = WORKLOADS / "dlrm_dcnv2.yaml"
SECONDS: Seconds = 15.0
GLOBAL_BATCH = 65_536
GPUS = (8, 16, 32, 64, 128)
EMBARK = {"mean": 1.5, "max": 1.77}
"""Throughput over table-row-wise, four models (one of them DLRM-DCNv2), to 128 H100: abstract of
Liu et al., Embedding Optimization for Training Large-scale Deep Learning Recommendation Systems
with EMBark, RecSys 2024. By how much for each model and number of GPUs, it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What NVIDIA submitted DLRM-DCNv2 with, and what came of it."""

    hardware: str
    gpus: int
    local_world_size: int
    global_batch_size: int
    by_nodes: bool = False
    """``SHARDING_PLAN=hier_auto``, not ``auto``."""
    memory_over_link: float
    """``MEM_COMM_BW_RATIO``."""
    replicated_below: Bytes = 0.0
    """``DP_SHARDING_THRESHOLD``."""
    samples_per_second: float
    """Throughput in ``result_0.txt``."""
    source: str

    def sharder(self) -> HugeCtrAuto:
        """Return NVIDIA's planner with the settings."""
        return HugeCtrAuto(
            memory_over_link=self.memory_over_link,
            replicated_below=self.replicated_below,
            by_nodes=self.by_nodes,
        )


SUBMITTED = (
    Submission(
        hardware="h100-sxm", gpus=8, local_world_size=8, global_batch_size=55_296,
        memory_over_link=7, samples_per_second=12_769_089,
        source="training_results_v3.0, config_DGXH100_1x8x6912.sh",
    ),
    Submission(
        hardware="h100-sxm", gpus=64, local_world_size=8, global_batch_size=135_168,
        by_nodes=True, memory_over_link=67, samples_per_second=37_789_978,
        source="training_results_v3.0, config_DGXH100_8x8x2112.sh",
    ),
    Submission(
        hardware="h100-sxm", gpus=128, local_world_size=8, global_batch_size=135_168,
        by_nodes=True, memory_over_link=67, samples_per_second=40_080_714,
        source="training_results_v3.0, config_DGXH100_16x8x1056.sh",
    ),
    Submission(
        hardware="gb200-nvl72", gpus=8, local_world_size=8, global_batch_size=55_296,
        memory_over_link=9, replicated_below=0.008 * GB, samples_per_second=23_597_215,
        source="training_results_v5.1, config_GB200_2x4x6912.sh",
    ),
    Submission(
        hardware="gb200-nvl72", gpus=64, local_world_size=64, global_batch_size=135_168,
        memory_over_link=9, samples_per_second=83_845_405,
        source="training_results_v5.1, config_GB200_16x4x2112.sh",
    ),
)  # fmt: skip
"""mlcommons/training_results_v3.0@63e326c and v5.1@441d65f; the GPUs of one NVL72 are one node."""


def problem(hardware: HardwareProfile, gpus: int, local: int, global_batch: int) -> ShardingProblem:
    """Return DLRM-DCNv2 on so many GPUs, so many of them in a node, with a global batch."""
    workload = replace(load_workload(WORKLOAD), local_batch_size=global_batch // gpus)
    topology = Topology(hardware=hardware, world_size=gpus, local_world_size=local)
    return ShardingProblem.of(workload, topology)


def without_host(hardware: HardwareProfile) -> HardwareProfile:
    """Return a machine whose hosts issue everything in no time."""
    free = replace(
        hardware.host,
        launch_time=0.0, launch_latency=0.0, op_time=0.0, backward_op_time=0.0, sync_time=0.0,
        listed_op_time=0.0, listed_backward_op_time=0.0,
    )  # fmt: skip
    return replace(hardware, host=free)


def steps(
    hardware: HardwareProfile, gpus: int, local: int, batch: int, sharders: Mapping[str, Sharder]
) -> dict[str, dict[str, Seconds]]:
    """Return the bound, the step of our plan, and that of each peer's, with and without hosts."""
    found: dict[str, dict[str, Seconds]] = {}
    for kind, machine in (("hosts", hardware), ("no_hosts", without_host(hardware))):
        given = problem(machine, gpus, local, batch)
        ours, plan = attempt_on(given, "auto", SECONDS, SEED)
        if plan is None:
            raise RuntimeError(ours["error"])
        row = {
            "bound_s": step_time_bound(given.workload, given.topology),
            "ours_s": ours["step_s"],
        }
        for name, sharder in sharders.items():
            row[f"{name}_s"] = sharder.shard(given, Budget(), Random(SEED)).step_time  # noqa: S311
        found[kind] = row
    return found


def scaled() -> Iterator[dict[str, Any]]:
    """Yield what all plans take on 8 to 128 H100."""
    hardware = load_profile("h100-sxm")
    peers: dict[str, Sharder] = {
        "table_row_wise": TableRowWise(),
        "auto": HugeCtrAuto(),
        "hier_auto": HugeCtrAuto(by_nodes=True),
    }
    for gpus in GPUS:
        yield {"gpus": gpus, **steps(hardware, gpus, 8, GLOBAL_BATCH, peers)}


def submitted() -> Iterator[dict[str, Any]]:
    """Yield what our plan and NVIDIA's take as NVIDIA submitted, and what HugeCTR took."""
    for each in SUBMITTED:
        hardware = load_profile(each.hardware)
        batch = each.global_batch_size
        peers: dict[str, Sharder] = {"theirs": each.sharder()}
        found = steps(hardware, each.gpus, each.local_world_size, batch, peers)
        yield {**asdict(each), "published_s": batch / each.samples_per_second, **found}


def made() -> dict[str, Any]:
    """Return all results."""
    return {
        **provenance(),
        "cpu_seconds": SECONDS,
        "global_batch_size": GLOBAL_BATCH,
        "embark": EMBARK,
        "scaled": list(scaled()),
        "submitted": list(submitted()),
    }


def table(results: Mapping[str, Any]) -> str:
    """Return the tables of the README."""
    return f"{_scaled_table(results)}\n\n{_submitted_table(results)}"


def _scaled_table(results: Mapping[str, Any]) -> str:
    peers = ("table_row_wise", "auto", "hier_auto")
    head = "H100", "hosts", "bound", "ours", "table_row_wise", "NVIDIA's auto", "hier_auto"
    rows = []
    ratios: dict[str, list[float]] = {"hosts": [], "no_hosts": []}
    for row in results["scaled"]:
        for kind, ours in ratios.items():
            took = row[kind]
            ours.append(took["table_row_wise_s"] / took["ours_s"])
            cells = [_beside(took[f"{peer}_s"], took["ours_s"]) for peer in peers]
            times = _ms(took["bound_s"]), _ms(took["ours_s"])
            rows.append((row["gpus"], _HOSTS[kind], *times, *cells))
    told = [
        f"{exp(fmean(map(log, each))):.2f}×, at most {max(each):.2f}×" for each in ratios.values()
    ]
    embark = results["embark"]
    means = (
        f"table_row_wise over ours, geometric mean: {told[0]} with our hosts, {told[1]} without."
    )
    theirs = f"{embark['mean']}× in the mean of four models, at most {embark['max']}×"
    return f"{markdown(head, rows)}\n\n{means} EMBark over it: {theirs}."


def _submitted_table(results: Mapping[str, Any]) -> str:
    found_in = "hosts", "bound", "ours", "NVIDIA's plan", "HugeCTR took"
    rows = []
    for row in results["submitted"]:
        name = "hier_auto" if row["by_nodes"] else "auto"
        version = row["source"].partition(",")[0].rpartition("_")[2]
        machine = f"{row['gpus']} × {row['hardware'].partition('-')[0].upper()}"
        for kind, text in _HOSTS.items():
            took = row[kind]
            rows.append((
                f"{machine}, {version}",
                name,
                f"{row['global_batch_size']:,}",
                text,
                _ms(took["bound_s"]),
                _ms(took["ours_s"]),
                _beside(took["theirs_s"], took["ours_s"]),
                _ms(row["published_s"]),
            ))
    return markdown(("submitted", "planner", "batch", *found_in), rows)


_HOSTS = {"hosts": "ours", "no_hosts": "take no time"}


def _ms(seconds: Seconds) -> str:
    return f"{seconds / MS:.2f} ms"


def _beside(seconds: Seconds, ours: Seconds) -> str:
    return f"{_ms(seconds)}, {seconds / ours:.2f}×"


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, made, lambda results: print(table(results)))
