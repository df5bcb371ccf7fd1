"""Fit collectives and matrix products, and write them into `planner/profiles`.

Run as ``python -m bench.fit_profiles`` from the repository root; needs `../shared/data`. Whatever
stands above the marker line of a profile is written by hand and kept, but for the ``embedding``
section, which is what ``bench.lookup_fit`` found; so are times of operators below it.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from bench.fitting.checks import across_nodes, across_ranks
from bench.fitting.collectives import Measurements, fit_all
from bench.fitting.families import families
from bench.fitting.gemm import (
    CHECKED,
    MEASURED,
    NEAREST,
    PEAKS,
    SAME_DIE,
    TF32_MEASURED,
    as_unaligned,
    carried_over,
    checked,
    errors_on,
    products,
)
from bench.fitting.lookup_rates import with_embedding
from bench.fitting.sources import DATA, REPOSITORY
from bench.kept import write
from costmodel.base.units import TFLOP
from costmodel.domain.hardware import GemmEfficiency, Gpu, KernelFamily
from costmodel.domain.workload import DataType
from planner.calibration.curves import accuracy
from planner.calibration.fit_collectives import Fit
from planner.calibration.fit_gemm import GemmFit, fit_products
from planner.files.profile_yaml import fitted_text
from planner.files.profiles import load_profile, parse_profile

PROFILES = REPOSITORY / "planner" / "profiles"
RESULTS = REPOSITORY / "bench" / "results"
MARKER = "# Fitted by `python -m bench.fit_profiles`, which rewrites everything below this line.\n"
DATE = "2026-11-21"

Gemm = dict[DataType, tuple[GemmEfficiency, str]]
"""Constants and their source, by data type."""


def main() -> None:
    """Fit, and write profiles and what was held out."""
    if not DATA.is_dir():
        sys.exit("no measurements: ../shared/data is missing")
    measured = Measurements()
    curves = fit_all(measured)
    heads = {name: _head(name) for name in curves}
    gpus = {name: bare_gpu(name) for name in heads}
    heads = {name: with_embedding(head, name, gpus[name]) for name, head in heads.items()}
    fits = _gemm_fits(gpus)
    gemm = {name: _checked(name, _gemm_of(name, fits), gpu) for name, gpu in gpus.items()}
    plain = {name: head + _fitted(curves[name], gemm[name], {}) for name, head in heads.items()}
    known = families({name: parse_profile(text, name) for name, text in plain.items()})
    for name, head in heads.items():
        text = head + MARKER + operators_of(name) + _fitted(curves[name], gemm[name], known[name])
        (PROFILES / f"{name}.yaml").write_text(text, encoding="utf-8")
    profiles = {name: load_profile(PROFILES / f"{name}.yaml") for name in heads}
    laws = {
        "across_ranks": across_ranks(measured, profiles),
        "across_nodes": across_nodes(profiles["h100-sxm"]),
    }
    _write("collectives_holdout.json", {**_collectives_result(curves), **laws})
    _write("gemm_holdout.json", _gemm_result(fits, _other_labs(gpus, gemm)))


def _head(name: str) -> str:
    text = (PROFILES / f"{name}.yaml").read_text(encoding="utf-8")
    head, marker, _ = text.partition(MARKER)
    if not marker:
        sys.exit(f"{name}.yaml has no marker line: {MARKER.strip()}")
    return head


def operators_of(name: str) -> str:
    """Return the section of operators of a profile, which is not fitted here."""
    text = (PROFILES / f"{name}.yaml").read_text(encoding="utf-8")
    found = re.search(r"^operators:\n(?: .*\n)*", text.partition(MARKER)[2], re.MULTILINE)
    return found[0] if found else ""


def bare_gpu(name: str) -> Gpu:
    """Return a profile's GPU without constants of products."""
    return replace(load_profile(PROFILES / f"{name}.yaml").gpu, gemm={})


def _fitted(curves: Sequence[Fit], gemm: Gemm, known: Mapping[str, KernelFamily]) -> str:
    constants = {str(data_type): entry for data_type, (entry, _) in gemm.items()}
    sources = {f"gpu.gemm.{data_type}": text for data_type, (_, text) in gemm.items()}
    return fitted_text(constants, [fit.curve for fit in curves], sources, known)


def _gemm_fits(gpus: Mapping[str, Gpu]) -> dict[tuple[str, DataType], GemmFit]:
    """Fit every GPU and type that was measured."""
    fits: dict[tuple[str, DataType], GemmFit] = {}
    for name, (gpu, column, data_type) in MEASURED.items():
        prior = fits["a100-sxm-80gb", DataType.BF16].constants if gpu == "V100" else None
        fits[name, data_type] = _fit(gpu, column, data_type, gpus[name], name, prior)
    gpu, column, data_type = TF32_MEASURED
    prior = fits["h100-sxm", DataType.BF16].constants
    fits["h100-sxm", data_type] = _fit(gpu, column, data_type, gpus["h100-sxm"], "h100-sxm", prior)
    return fits


def _fit(
    gpu: str,
    column: str,
    data_type: DataType,
    hardware: Gpu,
    profile: str,
    prior: GemmEfficiency | None,
) -> GemmFit:
    peak = PEAKS[profile][data_type] * TFLOP
    return fit_products(products(gpu, column), data_type, hardware, peak, prior)


def _gemm_of(name: str, fits: Mapping[tuple[str, DataType], GemmFit]) -> Gemm:
    """Constants of every type of one profile: its own fits, or the nearest one's."""
    nearest = NEAREST.get(name, name)
    arithmetic = {
        DataType.FP32: ("v100-nvlink", DataType.FP32),
        DataType.TF32: ("h100-sxm", DataType.TF32),
        DataType.FP16: (nearest, DataType.BF16),
        DataType.BF16: (nearest, DataType.BF16),
    }
    own = (nearest, DataType.BF16)
    if name == "v100-nvlink":
        own = ("v100-nvlink", DataType.FP32)
        arithmetic |= {
            DataType.TF32: own,
            DataType.BF16: own,
            DataType.FP16: ("a100-sxm-80gb", DataType.BF16),
        }
    return {
        data_type: as_unaligned(name, data_type, _entry(name, data_type, fits, origin, own))
        for data_type, origin in arithmetic.items()
    }


def _checked(name: str, gemm: Gemm, gpu: Gpu) -> Gemm:
    """Say of carried-over constants how far off they are where another lab has measured."""
    if name not in CHECKED:
        return gemm
    column, text, data_type = CHECKED[name]
    constants, source = gemm[data_type]
    measured = products(column, text)
    errors = errors_on(measured, data_type, replace(gpu, gemm={str(data_type): constants}))
    says = f"{source}; checked on {measured.origin}, {len(errors)} points of another lab"
    return {**gemm, data_type: (checked(constants, measured, errors), says)}


def _entry(
    name: str,
    data_type: DataType,
    fits: Mapping[tuple[str, DataType], GemmFit],
    origin: tuple[str, DataType],
    memory: tuple[str, DataType],
) -> tuple[GemmEfficiency, str]:
    if (name, data_type) in fits:
        fit = fits[name, data_type]
        return fit.constants, fit.source
    if SAME_DIE.get(name) == origin[0] and origin in fits and origin[1] is data_type:
        fit = fits[origin]
        return fit.constants, f"{fit.source}; on {origin[0]}, which has the same chip"
    peak = PEAKS[name][data_type]
    constants = carried_over(fits[origin].constants, fits[memory].constants, peak)
    return constants, (
        f"not measured: arithmetic as {origin[0]} {origin[1]}, memory as {memory[0]} {memory[1]}; "
        "peak of the datasheet"
    )


def _other_labs(gpus: Mapping[str, Gpu], gemm: Mapping[str, Gemm]) -> dict[str, dict[str, float]]:
    """Error on products that another lab measured, through PyTorch, on like GPUs."""
    checks = {}
    for name, (column, text, data_type) in CHECKED.items():
        measured = products(column, text)
        constants, _ = gemm[name][data_type]
        hardware = replace(gpus[name], gemm={str(data_type): constants})
        errors = errors_on(measured, data_type, hardware)
        checks[f"{name} {text}, {measured.origin}"] = {
            "points": len(errors),
            **asdict(accuracy(errors)),
        }
    return checks


def _collectives_result(curves: Mapping[str, list[Fit]]) -> dict[str, object]:
    return {
        "date": DATE,
        "data": "../shared/data/collectives.csv.gz, author_params.json",
        "error": "relative error on rows of sizes held out (alternate sizes, two folds)",
        "curves": [
            {
                "profile": name,
                "op": fit.curve.op,
                "num_ranks": fit.curve.num_ranks,
                "points": fit.curve.num_points,
                "form": fit.form,
                "errors": {form: asdict(errors) for form, errors in fit.errors.items()},
                "origin": fit.curve.origin,
            }
            for name, fits in curves.items()
            for fit in fits
        ],
    }


def _gemm_result(
    fits: Mapping[tuple[str, DataType], GemmFit], others: Mapping[str, Mapping[str, float]]
) -> dict[str, object]:
    return {
        "date": DATE,
        "data": "../shared/data/gemm.csv.gz",
        "error": "relative error on the shapes held out (20%, seed 0)",
        "fits": [
            {"profile": name, "data_type": data_type, **asdict(fit)}
            for (name, data_type), fit in fits.items()
        ],
        "other_labs": others,
    }


def _write(name: str, result: Mapping[str, object]) -> None:
    RESULTS.mkdir(exist_ok=True)
    write(RESULTS / name, result)


if __name__ == "__main__":
    main()
