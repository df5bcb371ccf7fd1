"""Plan a TorchRec model: IterationTimePlanner stands where EmbeddingShardingPlanner stood.

python examples/torchrec_planner.py

Needs torch, torchrec 1.9.2, and no GPU: the model is on the meta device, its tables take no memory.
"""

import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.planner.types import KernelConfig, TopologyFactory, TrainerConfig
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from planner.torchrec import IterationTimePlanner, save_plan

ROWS = {"item_id": 40_000_000, "user_history": 5_000_000, "country": 200}
IDS_PER_SAMPLE = {"item_id": 20.0, "user_history": 80.0, "country": 1.0}
MS = 1e-3


def make_model() -> torch.nn.Module:
    """Return a DLRM with one table per feature, as a training script makes it."""
    tables = [
        EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=128, feature_names=[name])
        for name, rows in ROWS.items()
    ]
    bags = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    return DLRMTrain(
        DLRM(
            embedding_bag_collection=bags,
            dense_in_features=13,
            dense_arch_layer_sizes=[512, 256, 128],
            over_arch_layer_sizes=[1024, 1024, 512, 256, 1],
            dense_device=torch.device("meta"),
        )
    )


def main() -> None:
    """Plan for four GPUs, and print the plan that DistributedModelParallel would take."""
    planner = IterationTimePlanner(
        topology=TopologyFactory.create_topology(
            TrainerConfig(world_size=4, local_world_size=4),
            kernel_config=KernelConfig(compute_device="cuda"),
        ),
        batch_size=8192,
        hardware="a100-sxm-80gb",
        constraints={
            name: ParameterConstraints(pooling_factors=[ids])
            for name, ids in IDS_PER_SAMPLE.items()
        },
        timeout_seconds=2.0,
    )
    # in a job: plan = planner.collective_plan(model, sharders, process_group)
    plan = planner.plan(make_model(), [EmbeddingBagCollectionSharder()])
    print(plan)
    print(f"step time: {planner.solution.step_time / MS:.2f} ms")
    save_plan("torchrec_plan.json", planner.solution)
    print("wrote torchrec_plan.json; `planner explain torchrec_plan.json` says why")


if __name__ == "__main__":
    main()
