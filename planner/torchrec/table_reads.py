"""Ids per sample of a table, and how they spread over its rows."""

from collections.abc import Sequence
from typing import Any

from torchrec.distributed.planner.constants import POOLING_FACTOR

from costmodel.inputs.deduplication import deduplicated
from costmodel.inputs.distribution import InputDistribution, Zipf
from planner.show.format import count
from planner.torchrec.communication import uses_index_dedup
from planner.torchrec.modules import FoundTable, ModelReading
from planner.torchrec.observed_inputs import observe, tells_of


def untold(found: FoundTable, reading: ModelReading) -> bool:
    """Return whether nothing gives a table's ids per sample: one per feature is assumed."""
    seen = any(tells_of(each, found.config.feature_names) for each in reading.batches)
    return not seen and not says_reads(found.constraint, reading.local_batch_size)


def table_reads(found: FoundTable, reading: ModelReading) -> dict[str, Any]:
    """Return the fields of ``EmbeddingTable`` that constraints and sample batches give."""
    config, samples = found.config, reading.local_batch_size
    observed = observe(reading.batches, config.feature_names) if reading.batches else None
    read = _constrained_reads(found, samples)
    told = observed if read is None else None
    std, longest = (told.pooling_std, told.longest_bag) if told else (0.0, 0.0)
    if read is None and observed is not None:
        read = observed.pooling_factor, observed.bags_per_sample
    pooling_factor, bags = read or (float(len(config.feature_names)), 1.0)
    inputs: InputDistribution = observed.inputs if observed else Zipf()
    if uses_index_dedup(found):
        sent, inputs = deduplicated(
            inputs, config.num_embeddings, pooling_factor * samples, reading.world_size
        )
        std, pooling_factor = std * sent / (samples * pooling_factor), sent / samples
    return {
        "pooling_factor": pooling_factor,
        "pooling_std": std,
        "longest_bag": longest,
        "bags_per_sample": bags,
        "inputs": inputs,
    }


def says_reads(constraint: Any, local_batch_size: int) -> bool:  # noqa: ANN401
    """Return whether ``ParameterConstraints`` give other reads than one id per feature."""
    defaults = _defaults(local_batch_size)
    return any(
        list(getattr(constraint, name, None) or own) != own for name, own in defaults.items()
    )


def _defaults(local_batch_size: int) -> dict[str, list[float]]:
    """Return the values that per-input fields of ``ParameterConstraints`` have if unset."""
    return {
        "pooling_factors": [POOLING_FACTOR],
        "num_poolings": [1.0],
        "batch_sizes": [float(local_batch_size)],
    }


def num_inputs(found: FoundTable) -> int:
    """Return the number of inputs that a table's constraint lists; else its features.

    TorchRec adds up the products of the values in the same place, whatever the features
    (``ShardPerfContext`` and ``calculate_shard_storages``, 1.9.2).

    Raises
    ------
    ValueError
        The lists differ in length; one value is one for all inputs.

    """
    given = {name: getattr(found.constraint, name, None) or [] for name in _defaults(1)}
    counts = {name: len(values) for name, values in given.items() if len(values) > 1}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{each} values of `{name}`" for name, each in counts.items())
        raise ValueError(
            f"its constraint has {told}; give as many of each, or one for all of its "
            f"{count(len(found.config.feature_names), 'feature')}"
        )
    return next(iter(counts.values()), len(found.config.feature_names))


def _constrained_reads(found: FoundTable, local_batch_size: int) -> tuple[float, float] | None:
    """Return ids and pooled outputs per sample of a feature; None: the constraint has neither.

    An input that is pooled more than once per sample, or has a batch size of its own, is scaled
    accordingly.

    Raises
    ------
    ValueError
        Its lists differ in length.

    """
    inputs = num_inputs(found)
    if not says_reads(found.constraint, local_batch_size):
        return None
    factors, poolings, batches = (
        _for_each(getattr(found.constraint, name, None) or default, inputs)
        for name, default in _defaults(local_batch_size).items()
    )
    bags = [
        float(times * batch) / local_batch_size
        for times, batch in zip(poolings, batches, strict=True)
    ]
    ids = sum(factor * each for factor, each in zip(factors, bags, strict=True))
    return float(ids), sum(bags) / len(found.config.feature_names)


def _for_each(values: Sequence[float], inputs: int) -> list[float]:
    return list(values) * inputs if len(values) == 1 else list(values)
