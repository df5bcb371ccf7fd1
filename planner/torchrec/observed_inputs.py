"""What sample batches say about a table: ids per sample, and how often rows are hit again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias

import torch
from torchrec.distributed.planner.types import PlannerError
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from costmodel.inputs.distribution import ReuseHistogram, histogram_of
from planner.torchrec.error_types import INPUT_VALIDATION

SampleBatch: TypeAlias = Any
"""A ``KeyedJaggedTensor``, or an object that has one as ``sparse_features`` (TorchRec's batch)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedInputs:
    """How the sample batches read one table."""

    pooling_factor: float
    """Ids per sample, over all features of the table."""
    pooling_std: float
    """Standard deviation of the ids per sample."""
    bags_per_sample: float
    """Lengths of ids that a feature has per sample: 1 unless batches are variable (VBE)."""
    inputs: ReuseHistogram


def to_batches(given: Iterable[SampleBatch] | None) -> tuple[SampleBatch, ...]:
    """Return the batches that a script gives.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        It gives a single one, or something else.

    """
    listed = () if given is None else given
    batches = tuple(listed) if isinstance(listed, Iterable) else (None,)
    if not all(isinstance(_features(each), KeyedJaggedTensor) for each in batches):
        raise PlannerError(
            "sample_batches must be a list of KeyedJaggedTensors, or of batches with one as "
            f"`sparse_features`, got a {type(given).__name__}",
            INPUT_VALIDATION,
        )
    return batches


def observe(batches: Sequence[SampleBatch], feature_names: Sequence[str]) -> ObservedInputs | None:
    """Return what the batches say about the table of these features; None: they lack them.

    Hits are counted within each batch; rows of all batches go into one histogram.
    """
    counts: list[int] = []
    lookups = samples = counted = 0
    bags = deviations = 0.0
    for batch in batches:
        ids = _ids(batch, feature_names)
        if ids is None:
            continue
        samples += _features(batch).stride()
        bags += _num_bags(_features(batch), feature_names)
        lookups += ids.numel()
        deviations += _deviations(_features(batch), feature_names)
        counted += 1
        counts.extend(_hits(ids))
    if samples == 0:
        return None
    return ObservedInputs(
        # a feature absent from every sample still takes a lookup now and then
        pooling_factor=max(lookups, 1) / samples,
        pooling_std=sqrt(deviations / samples),
        bags_per_sample=bags / samples,
        inputs=ReuseHistogram(
            row_shares=histogram_of(counts), num_lookups=max(1.0, lookups / counted)
        ),
    )


def _features(batch: SampleBatch) -> Any:  # noqa: ANN401 - a KeyedJaggedTensor
    return getattr(batch, "sparse_features", batch)


def _ids(batch: SampleBatch, feature_names: Sequence[str]) -> torch.Tensor | None:
    features = _features(batch)
    present = [name for name in feature_names if name in features.keys()]  # noqa: SIM118
    if not present:
        return None
    return torch.cat([features[name].values() for name in present])


def _num_bags(features: Any, feature_names: Sequence[str]) -> float:  # noqa: ANN401
    """Return how many lengths the features have that a batch has, on average."""
    strides: dict[str, int] = dict(zip(features.keys(), features.stride_per_key(), strict=True))
    own = [strides[name] for name in feature_names if name in strides]
    return sum(own) / len(own)


def _deviations(features: Any, feature_names: Sequence[str]) -> float:  # noqa: ANN401
    """Return the sum over a batch's samples of their ids' squared deviation from the mean.

    Features with samples of their own (VBE) count as independent.
    """
    present = [name for name in feature_names if name in features.keys()]  # noqa: SIM118
    lengths = [features[name].lengths().double() for name in present]
    if len({len(each) for each in lengths}) == 1:
        lengths = [torch.stack(lengths).sum(dim=0)]
    return sum(float(((each - each.mean()) ** 2).sum()) for each in lengths if len(each))


def _hits(ids: torch.Tensor) -> Iterable[int]:
    _, counts = torch.unique(ids, return_counts=True)
    hits: list[int] = counts.tolist()
    return hits
