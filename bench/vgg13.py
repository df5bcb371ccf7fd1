"""A training step of VGG-13 on an H100, by families of kernels: `python -m bench.vgg13 [--write]`.

The execution trace of ``../shared/data/dense`` is predicted with ``h100-sxm`` as `planner predict`
does, and held against the kernels in the profiler's trace of the same run (sarchlab/triosim). The
two constants of max pooling were fitted to another run, of a quarter of the samples
(``vgg13_h100_bs128_trace.csv``); nothing was fitted to this step or to anything else of it.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from bench.documented import ROOT
from bench.kept import print_and_keep
from costmodel.base.units import MS, US
from costmodel.operators.operator_families import OperatorFamily
from planner.traces.predict.prediction import predict
from planner.traces.trace_files import Document, read_documents

DENSE = ROOT.parent / "shared" / "data" / "dense"
EXECUTION, PROFILE = DENSE / "vgg13_et.json.gz", DENSE / "vgg13_kineto.json.gz"
RESULTS = ROOT / "bench" / "results" / "vgg13.json"
FAMILIES: Mapping[str, OperatorFamily] = {
    "pool": OperatorFamily.POOLING,
    "multi_tensor_apply": OperatorFamily.ELEMENTWISE,
    "FillFunctor": OperatorFamily.FILL,
    "Memset": OperatorFamily.FILL,
    "reduce_kernel": OperatorFamily.REDUCTION,
    "nll_loss": OperatorFamily.LOSS,
    "softmax": OperatorFamily.NORMALIZATION,
    "SoftMax": OperatorFamily.NORMALIZATION,
    "elementwise_kernel": OperatorFamily.ELEMENTWISE,
    "dropout": OperatorFamily.ELEMENTWISE,
    "gemm": OperatorFamily.PRODUCT,
}
"""Families of the trace's kernels, by a part of the name that only those have; all others are what
cuDNN runs for convolutions, its copies into other layouts among them."""
_KERNELS = {"kernel", "gpu_memcpy", "gpu_memset"}


def measured(profile: Document) -> dict[str, float]:
    """Return the seconds of a trace's kernels by family, and from its first to its last."""
    found: Counter[str] = Counter()
    kernels = [each for each in profile["traceEvents"] if each.get("cat") in _KERNELS]
    times: dict[str, float] = dict.fromkeys((each.value for each in OperatorFamily), 0.0)
    for each in kernels:
        family = _family(each["name"])
        found[family] += 1
        times[family] += each["dur"] * US
    ends = [each["ts"] + each["dur"] for each in kernels]
    times["step"] = (max(ends) - min(each["ts"] for each in kernels)) * US
    return {name: seconds for name, seconds in times.items() if found[name] or name == "step"}


def _family(kernel: str) -> OperatorFamily:
    if re.search(r"cudnn|implicit_gemm|wgrad|dgrad|fprop", kernel):
        return OperatorFamily.CONVOLUTION
    own = (family for part, family in FAMILIES.items() if part in kernel)
    return next(own, OperatorFamily.CONVOLUTION)


def table() -> dict[str, Any]:
    """Return every family and the step, predicted and measured."""
    made = predict(EXECUTION, "h100-sxm")
    ((_, document),) = read_documents(PROFILE)
    seen = measured(document)
    predicted = {str(each.family): each.seconds for each in made.families}
    predicted["step"] = made.step_time
    return {
        name: {
            "predicted_ms": round(predicted.get(name, 0.0) / MS, 3),
            "measured_ms": round(seen.get(name, 0.0) / MS, 3),
        }
        for name in sorted(predicted | seen, key=lambda each: -seen.get(each, 0.0))
    }


def show(rows: Mapping[str, Mapping[str, float]]) -> None:
    """Print the table."""
    print(f"{'family':<16}{'predicted':>12}{'measured':>12}{'error':>9}")
    for name, row in rows.items():
        predicted, seen = row["predicted_ms"], row["measured_ms"]
        error = f"{predicted / seen - 1:+.1%}" if seen else ""
        print(f"{name:<16}{predicted:>9.2f} ms{seen:>9.2f} ms{error:>9}")


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, table, show)
