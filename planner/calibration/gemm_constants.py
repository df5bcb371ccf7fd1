"""From measured products to the constants of a profile."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costmodel.domain.hardware import GemmEfficiency, Gpu
from costmodel.domain.workload import DataType
from planner.calibration.curves import Accuracy
from planner.calibration.enough import check_enough
from planner.calibration.fit_gemm import (
    PEAK_OVER_BEST,
    Products,
    corrected_products,
    fit_measured,
    fit_vectors,
)
from planner.calibration.points import Family, GemmPoint
from planner.calibration.records import Record


def fit_gemm(
    records: Sequence[Record], gpu: Gpu, origin: str
) -> tuple[dict[str, GemmEfficiency], dict[str, str], dict[str, Accuracy]]:
    """Return constants by data type, their sources, and errors of a core's batched products.

    The peak is the best measured rate, on a GPU some more.
    """
    peak = "the best" if gpu.is_core else f"{PEAK_OVER_BEST:g} x the best"
    single = [record for record in records if _product(record).num_products == 1]
    check_enough(Family.GEMM, len(single), 1, "products")
    constants: dict[str, GemmEfficiency] = {}
    sources, errors = {}, {}
    for data_type in dict.fromkeys(_product(record).data_type for record in single):
        some = [record for record in single if _product(record).data_type is data_type]
        products = _products(some, origin)
        fit = fit_measured(products, data_type, gpu)
        constants[data_type.value] = corrected_products(fit, products, data_type, gpu).constants
        sources[f"gpu.gemm.{data_type}"] = (
            f"fitted to {len(some)} products: {origin}; peak: {peak} of them"
        )
    batched = [record for record in records if _product(record).num_products > 1]
    if batched:
        counts = np.array([float(_product(record).num_products) for record in batched])
        core = replace(gpu, gemm=constants)
        vectors = fit_vectors(counts, _products(batched, origin), DataType.FP32, core)
        constants["fp32"] = replace(constants["fp32"], vector_time=vectors.time)
        sources["gpu.gemm.fp32"] += f"; vector_time: {len(batched)} batched products"
        errors["batched products"] = vectors.errors
    return constants, sources, errors


def _products(records: Sequence[Record], origin: str) -> Products:
    points = map(_product, records)
    return Products(
        shapes=np.array([[point.m, point.n, point.k] for point in points], float),
        times=np.array([record.seconds["product"] for record in records]),
        origin=origin,
    )


def _product(record: Record) -> GemmPoint:
    if not isinstance(record.point, GemmPoint):
        raise TypeError(f"not a product: {record.point}")
    return record.point
