"""How a batch reads a table: ids per sample, and how they spread over its rows."""

from typing import Any

from torchrec.distributed.planner.constants import POOLING_FACTOR

from costmodel.inputs.deduplication import deduplicated
from costmodel.inputs.distribution import InputDistribution, Zipf
from planner.show.format import count
from planner.torchrec.communication import uses_index_dedup
from planner.torchrec.modules import FoundTable, ModelReading
from planner.torchrec.observed_inputs import observe


def table_reads(found: FoundTable, reading: ModelReading) -> dict[str, Any]:
    """Return what constraints and sample batches say of it, as fields of ``EmbeddingTable``."""
    config, samples = found.config, reading.local_batch_size
    observed = observe(reading.batches, config.feature_names) if reading.batches else None
    read = _constrained_reads(config, found.constraint, samples)
    std = observed.pooling_std if observed is not None and read is None else 0.0
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
        "bags_per_sample": bags,
        "inputs": inputs,
    }


def _constrained_reads(
    config: Any,  # noqa: ANN401 - EmbeddingBagConfig
    constraint: Any,  # noqa: ANN401 - ParameterConstraints
    local_batch_size: int,
) -> tuple[float, float] | None:
    """Return ids, and a feature's pooled outputs, per sample; None: the constraint has neither.

    A feature that is pooled more than once per sample, or has a batch size of its own, is scaled
    accordingly.

    Raises
    ------
    ValueError
        A list has neither one value nor one for each feature.

    """
    features = len(config.feature_names)
    defaults = {
        "pooling_factors": [POOLING_FACTOR],
        "num_poolings": [1.0],
        "batch_sizes": [float(local_batch_size)],
    }
    given = {name: getattr(constraint, name, None) or default for name, default in defaults.items()}
    if given == defaults:
        return None
    factors, poolings, batches = (
        _by_feature(name, list(values), features) for name, values in given.items()
    )
    bags = [
        float(times * batch) / local_batch_size
        for times, batch in zip(poolings, batches, strict=True)
    ]
    ids = sum(factor * each for factor, each in zip(factors, bags, strict=True))
    return float(ids), sum(bags) / features


def _by_feature(name: str, values: list[float], num_features: int) -> list[float]:
    """Return a value for every feature; one holds for all of them."""
    if len(values) not in {1, num_features}:
        raise ValueError(
            f"its `{name}` have {count(len(values), 'value')}; give one, or one for each of "
            f"its {count(num_features, 'feature')}"
        )
    return values * num_features if len(values) == 1 else values
