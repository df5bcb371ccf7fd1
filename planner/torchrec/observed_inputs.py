"""Ids per sample and repeated rows of tables, counted in sample batches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias

import torch
from torchrec.distributed.planner.types import PlannerError
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from costmodel.inputs.distribution import ReuseHistogram, histogram_of
from planner.operators.batches import mapped
from planner.torchrec.error_types import INPUT_VALIDATION

SampleBatch: TypeAlias = Any
"""A ``KeyedJaggedTensor``, or what has some: a dict, a tuple, a dataclass, TorchRec's batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedInputs:
    """How sample batches look up one table."""

    pooling_factor: float
    """Mean ids per sample, over all features of the table."""
    pooling_std: float
    """Standard deviation of the ids per sample."""
    longest_bag: float
    """Ids of the longest bag of a feature in a batch, mean of the batches; 0: all have as many."""
    bags_per_sample: float
    """Lengths per sample and feature: 1 unless batches are variable (VBE)."""
    inputs: ReuseHistogram


def to_batches(given: Iterable[SampleBatch] | None) -> tuple[KeyedJaggedTensor, ...]:
    """Return the features of the batches that a script gives, a tensor each.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        It gives a single one, or something else, or features that cannot be counted.

    """
    listed = () if given is None else given
    if isinstance(listed, KeyedJaggedTensor | Mapping | str) or not isinstance(listed, Iterable):
        raise _no_batches(type(given).__name__)
    batches = list(map(_to_features, listed))
    some = tuple(each for each in batches if each.stride())
    if batches and not some:
        raise PlannerError("sample_batches have no sample", INPUT_VALIDATION)
    return some


def tells_of(batch: KeyedJaggedTensor, feature_names: Iterable[str]) -> bool:
    """Return whether a batch has one of some features."""
    return not set(feature_names).isdisjoint(batch.keys())


def _to_features(batch: SampleBatch) -> KeyedJaggedTensor:
    """Return the features of a batch as one tensor."""
    given, found = getattr(batch, "sparse_features", batch), list[KeyedJaggedTensor]()

    def keep(each: Any) -> Any:  # noqa: ANN401 - a tensor or one of TorchRec's
        if isinstance(each, KeyedJaggedTensor):
            found.append(each)
        return each

    mapped(given, keep)
    features = _joined(found)
    if features is not None:
        _check(features)
        return features
    where = "" if given is batch else f", whose sparse_features are a {type(given).__name__}"
    raise _no_batches(f"list of {type(batch).__name__}{where}")


def _check(features: Any) -> None:  # noqa: ANN401 - a KeyedJaggedTensor
    """Refuse a batch that cannot be counted."""
    names, ids = list(features.keys()), features.values()
    twice = [name for name in names if names.count(name) > 1]
    num_told = int(features.lengths().sum())
    if twice:
        problem = f"feature `{twice[0]}` twice in a batch: give it once, with the ids of one table"
    elif ids.is_floating_point():
        problem = f"ids of type {ids.dtype}: give whole numbers"
    elif num_told != ids.numel():
        problem = f"{ids.numel():,} ids, where the lengths come to {num_told:,}"
    else:
        return
    raise PlannerError(f"sample_batches have {problem}", INPUT_VALIDATION)


def _no_batches(got: str) -> PlannerError:
    return PlannerError(
        "sample_batches must be a list of KeyedJaggedTensors, or of batches that have them (dicts, "
        f"tuples, dataclasses), got a {got}",
        INPUT_VALIDATION,
    )


def _joined(groups: Sequence[KeyedJaggedTensor]) -> KeyedJaggedTensor | None:
    """Return the features of several tensors in one, without weights; None: there are none.

    Each keeps its number of samples.
    """
    if len(groups) < 2:
        return next(iter(groups), None)
    strides = [stride for each in groups for stride in each.stride_per_key()]
    apart = {} if len(set(strides)) == 1 else {"stride_per_key_per_rank": [[n] for n in strides]}
    return KeyedJaggedTensor(
        keys=[name for each in groups for name in each.keys()],  # noqa: SIM118 - no dict
        values=torch.cat([each.values() for each in groups]),
        lengths=torch.cat([each.lengths() for each in groups]),
        **apart,
    )


def observe(
    batches: Sequence[KeyedJaggedTensor], feature_names: Sequence[str]
) -> ObservedInputs | None:
    """Return how the batches look up the table of these features; None: they lack them.

    Hits are counted in each batch; rows of all batches go into one histogram.
    """
    counts: list[int] = []
    lookups = samples = counted = 0
    bags = deviations = longest = 0.0
    alike = True
    for batch in batches:
        ids = _ids(batch, feature_names)
        if ids is None:
            continue
        samples += batch.stride()
        bags += _num_bags(batch, feature_names)
        lookups += ids.numel()
        deviations += _deviations(batch, feature_names)
        shortest, its_longest = _extremes(batch, feature_names)
        longest, alike = longest + its_longest, alike and shortest == its_longest
        counted += 1
        counts.extend(_hits(ids))
    if samples == 0:
        return None
    seen = {name for batch in batches for name in batch.keys()}  # noqa: SIM118
    return ObservedInputs(
        # one without ids still takes a lookup now and then, one that is not there an id a sample
        pooling_factor=max(lookups, 1) / samples + len(set(feature_names) - seen),
        pooling_std=sqrt(deviations / samples),
        longest_bag=0.0 if alike else longest / counted,
        bags_per_sample=bags / samples,
        inputs=ReuseHistogram(
            row_shares=histogram_of(counts), num_lookups=max(1.0, lookups / counted)
        ),
    )


def _ids(batch: KeyedJaggedTensor, feature_names: Sequence[str]) -> torch.Tensor | None:
    """Return a table's ids in a batch, feature after feature; None: it has no such feature."""
    present = [name for name in feature_names if name in batch.keys()]  # noqa: SIM118
    if not present:
        return None
    return torch.cat([batch[name].values() for name in present])


def _num_bags(features: Any, feature_names: Sequence[str]) -> float:  # noqa: ANN401
    """Return the mean number of lengths per feature that a batch has."""
    strides: dict[str, int] = dict(zip(features.keys(), features.stride_per_key(), strict=True))
    own = [strides[name] for name in feature_names if name in strides]
    return sum(own) / len(own)


def _extremes(features: Any, feature_names: Sequence[str]) -> tuple[int, int]:  # noqa: ANN401
    """Return the fewest and the most ids that a bag of one feature has."""
    present = [name for name in feature_names if name in features.keys()]  # noqa: SIM118
    lengths = torch.cat([features[name].lengths() for name in present])
    return (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)


def _deviations(features: Any, feature_names: Sequence[str]) -> float:  # noqa: ANN401
    """Return the sum over samples of the squared deviation of their ids from the mean.

    Features with samples of their own (VBE) count as independent.
    """
    present = [name for name in feature_names if name in features.keys()]  # noqa: SIM118
    lengths = [features[name].lengths().double() for name in present]
    if len({len(each) for each in lengths}) == 1:
        lengths = [torch.stack(lengths).sum(dim=0)]
    return sum(float(((each - each.mean()) ** 2).sum()) for each in lengths if len(each))


def _hits(ids: torch.Tensor) -> Iterable[int]:
    """Return how often each id comes, of those that do."""
    _, counts = torch.unique(ids, return_counts=True)
    hits: list[int] = counts.tolist()
    return hits
