"""Plan a TorchRec model offline for several machines, by TorchRec's own dry run.

python examples/torchrec_dry_run.py --sku A100=a100-sxm-80gb --sku H100=h100-sxm

Needs torch, torchrec 1.9.2, and no GPU. TorchRec's statistics of each plan, with our predictions in
them, go to dry_run.log: `planner torchrec read-stats dry_run.log` makes a plan file of the last.
"""

import argparse
import logging

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.planner.dry_run.api import DryRunOrchestrator
from torchrec.distributed.planner.dry_run.types import DryRunRequest, SkuOverride
from torchrec.distributed.planner.executor import DefaultPlannerExecutor
from torchrec.distributed.planner.types import (
    PlannerConfig,
    PlannerSessionContext,
    TrainingFramework,
)
from torchrec_planner import IDS_PER_SAMPLE, make_model

from planner.torchrec.provider import IterationTimeProvider

PROFILES = ["SMALL=v100-nvlink", "A100=a100-sxm-80gb", "H100=h100-sxm"]
OVERRIDES = {"SMALL": SkuOverride(hbm_gb=2, ddr_gb=1)}
"""Memory so small that the plan fails, as a result says."""
GIB = 2**30


def main() -> None:
    """Plan for eight GPUs of each SKU, and print what TorchRec's results say."""
    parser = argparse.ArgumentParser(description="Plan a TorchRec model offline.")
    parser.add_argument("--sku", action="append", metavar="NAME=PROFILE", help="repeatable")
    profiles = dict(each.split("=", 1) for each in parser.parse_args().sku or PROFILES)
    logging.basicConfig(filename="dry_run.log", filemode="w", level=logging.INFO, force=True)
    request = DryRunRequest(
        model=make_model,
        sharders=[EmbeddingBagCollectionSharder()],
        world_size=8,
        local_world_size=8,
        batch_size=8192,
        constraints={
            name: ParameterConstraints(pooling_factors=[ids])
            for name, ids in IDS_PER_SAMPLE.items()
        },
        training_framework=next(each for each in TrainingFramework if each.value),
        planner_config=PlannerConfig(timeout_seconds=2, debug=True),
        sku_list=list(profiles),
        per_sku_overrides={sku: OVERRIDES[sku] for sku in OVERRIDES.keys() & profiles},
    )
    provider = IterationTimeProvider(profiles, dense_optimizer="sgd", precision="fp32")
    orchestrator = DryRunOrchestrator(DefaultPlannerExecutor(provider=provider))
    results = orchestrator.plan(request, PlannerSessionContext(request=request, results={}))
    for sku, result in results.items():
        if result.success:
            held = result.estimated_max_hbm_bytes / GIB
            print(f"{sku}: {held:.1f} GiB at most, {result.critical_path_ms:.2f} ms of embeddings")
        else:
            print(f"{sku}: {result.planner_error_type.value}: {result.planner_failure_reason}")


if __name__ == "__main__":
    main()
