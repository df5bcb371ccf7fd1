"""What single operators, and backwards of a core, take that no general model says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.domain.hardware import Gpu, KernelFamily
from costmodel.kernels.pointwise import pointwise_time
from planner.calibration.curves import Accuracy, fitted_family
from planner.calibration.fit_embedding import EmbeddingFit
from planner.calibration.fit_operators import fit_operators
from planner.calibration.fit_updates import fit_updates
from planner.calibration.lookup_data import LookupSetting
from planner.calibration.points import OperatorPoint
from planner.calibration.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTimes:
    """Fields of ``Gpu``, and what they rest on."""

    fields: Mapping[str, Any]
    sources: Mapping[str, str]
    """By field's dotted name in a profile."""
    families: Mapping[str, KernelFamily]
    errors: Mapping[str, Accuracy]
    """By the backward's name."""


def fit_own_times(
    records: Sequence[Record],
    backwards: Mapping[str, Sequence[Record]],
    lookups: EmbeddingFit,
    setting: LookupSetting,
    *,
    gpu: Gpu,
    origin: str,
) -> OwnTimes:
    """Return what was fitted; nothing where nothing was measured.

    Parameters
    ----------
    records
        All of them; those of operators are used.
    backwards
        Lookups whose backward has a kernel of its own (``fit_updates.by_backward``).
    lookups, setting, gpu
        What was fitted to all others, and the device that it makes.
    origin
        Machine, date and versions.

    """
    own = [record for record in records if isinstance(record.point, OperatorPoint)]
    operators = fit_operators(own, lambda num_bytes: pointwise_time(num_bytes, gpu))
    updates = fit_updates(backwards, lookups, setting)
    families: dict[str, KernelFamily] = {}
    if operators:
        by_bytes = f"{origin}; by bytes alone {100 * operators.errors_by_bytes.median:.0f}%"
        sizes = {"num_elements": operators.num_elements}
        families["operators"] = fitted_family(
            operators.errors, operators.num_points, by_bytes, sizes
        )
    fields: dict[str, Any] = {}
    if operators:
        fields["element_times"] = operators.element_times
    if updates:
        fields["update_costs"] = {key: fit.cost for key, fit in updates.items()}
    return OwnTimes(
        fields=fields,
        sources={f"gpu.{name}": f"fitted: {origin}" for name in fields},
        families=families,
        errors={f"embedding_backward {key}": fit.errors for key, fit in updates.items()},
    )
