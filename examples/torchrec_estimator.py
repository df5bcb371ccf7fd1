"""Keep TorchRec's own planner, and give it our seconds of every shard.

python examples/torchrec_estimator.py

Needs torch, torchrec 1.9.2, and no GPU. Its enumerator, proposers and partitioner plan once with
TorchRec's estimates and once with ours; our cost model then times both plans.
"""

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import KernelConfig, TopologyFactory, TrainerConfig
from torchrec_planner import IDS_PER_SAMPLE, make_model

from planner.torchrec import IterationTimePerfModel
from planner.torchrec.estimator import IterationTimeEstimator

BATCH_SIZE = 8192
HARDWARE = "a100-sxm-80gb"


def main() -> None:
    """Plan twice for two GPUs, and print both plans' sharding types and steps."""
    told = {
        "topology": TopologyFactory.create_topology(
            TrainerConfig(world_size=2, local_world_size=2),
            kernel_config=KernelConfig(compute_device="cuda"),
        ),
        "constraints": {
            name: ParameterConstraints(pooling_factors=[ids])
            for name, ids in IDS_PER_SAMPLE.items()
        },
    }
    ours = [IterationTimeEstimator(**told, hardware=HARDWARE), EmbeddingStorageEstimator(**told)]
    rating = IterationTimePerfModel(**told, hardware=HARDWARE)
    for name, estimators in {"TorchRec's": None, "our": ours}.items():
        planner = EmbeddingShardingPlanner(
            **told,
            batch_size=BATCH_SIZE,
            enumerator=EmbeddingEnumerator(**told, batch_size=BATCH_SIZE, estimator=estimators),
            debug=False,
            # performance_model=rating rates its proposals by the simulated step, too
        )
        planner.plan(make_model(), [EmbeddingBagCollectionSharder()])
        chosen = planner.get_selected_options()
        types = ", ".join(f"{each.name} {each.sharding_type}" for each in chosen)
        print(f"with {name} times: {types}; step {rating.rate(chosen):.2f} ms")


if __name__ == "__main__":
    main()
