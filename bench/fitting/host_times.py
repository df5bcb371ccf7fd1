"""Host times of machines from public profiler traces: `python -m bench.fitting.host_times`.

``host_operators.csv`` has what operators take on the CPU themselves, without the operators and
launches inside them, and what a launch takes (``cudaLaunchKernel``, ``hipLaunchKernel``): medians
over 20 calls and more of a trace. The traces are of other models than ours, so that only the ratio
to the same operators on the DGX-1 of the 8 x V100 TorchRec trace counts. It scales that trace's
``op_time`` and ``backward_op_time``:

    op_time = op_time(DGX-1) * geometric mean over operators of (median here / median there)

A launch is taken as it is: the driver's, whatever the model. Traces that record Python stacks and
memory as well (``all``) take longer for it, the time of operators by ``RECORDED_ALL``.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean, median

from costmodel.base.units import US, Seconds
from planner.files.profiles import load_profile

TRACED = Path(__file__).parent / "host_operators.csv"
REFERENCE = "v100-nvlink"
LAUNCH = "launch"
RECORDED_ALL = 1.15
"""How much longer operators take while stacks and memory are recorded besides shapes: geometric
mean over eight operators of torch 2.13, 1.04 to 1.29, taking turns on one x86-64 core."""
FITTED = ("h100-sxm", "mi300x")
"""Profiles whose host times are from here. The A100 traces only confirm what their profile has."""


@dataclass(frozen=True, slots=True)
class TracedHost:
    """What the traces of a kind of machine say about its host."""

    launch_time: Seconds
    ratio: float
    """Time of its operators over that of the same ones on the DGX-1."""
    num_traces: int

    @property
    def times(self) -> Mapping[str, Seconds]:
        """Seconds by field of ``Host``, to half a microsecond."""
        host = load_profile(REFERENCE).host
        seconds = {
            "launch_time": self.launch_time,
            "op_time": self.ratio * host.op_time,
            "backward_op_time": self.ratio * host.backward_op_time,
        }
        return {name: round(2 * each / US) / 2 * US for name, each in seconds.items()}


def traced_hosts() -> Mapping[str, TracedHost]:
    """Return what is known of every kind of machine, by the profile's name."""
    medians: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    sources = defaultdict(set)
    with TRACED.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name, operator = row["profile"], row["operator"]
            sources[name].add(row["source"])
            slower = RECORDED_ALL if row["recorded"] == "all" and operator != LAUNCH else 1.0
            medians[name][operator].append(float(row["self_us"]) * US / slower)
    there = {operator: median(times) for operator, times in medians[REFERENCE].items()}
    found = {}
    for name, operators in medians.items():
        here = {operator: median(times) for operator, times in operators.items()}
        ratios = [log(here[each] / there[each]) for each in here if each != LAUNCH]
        found[name] = TracedHost(here[LAUNCH], exp(fmean(ratios)), len(sources[name]))
    return found


def main() -> None:
    """Print the ratio and times of every kind of machine, beside its profile's."""
    for name, traced in traced_hosts().items():
        host = load_profile(name).host
        times = ", ".join(
            f"{field} {seconds / US:g} us (profile: {getattr(host, field) / US:g})"
            for field, seconds in traced.times.items()
        )
        print(f"{name}: {traced.num_traces} traces, operators x {traced.ratio:.2f}; {times}")


if __name__ == "__main__":
    main()
