"""The cases: each plans something, and returns what came of it in a line.

python -m bench.torchrec_cases.cases [CASE ...]

Prints them, or some, as JSON.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGALRM, alarm, signal
from textwrap import shorten
from typing import Any

from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import (
    CommType,
    QCommsConfig,
    get_qcomm_codecs_registry,
)
from torchrec.distributed.itep_embeddingbag import ITEPEmbeddingBagCollectionSharder
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.proposers import UniformProposer
from torchrec.distributed.planner.stats import NoopEmbeddingStats
from torchrec.distributed.planner.types import CustomTopologyData, ParameterConstraints
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import CacheParams
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.itep_embedding_modules import ITEPEmbeddingBagCollection
from torchrec.modules.itep_modules import GenericITEPModule
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.types import DataType

from bench.torchrec_cases.scripts import (
    GIB,
    GPUS,
    META,
    bags,
    constraints,
    kinds,
    names,
    planned,
    sequences,
    step,
    topology,
    warnings_kept,
)

LONGEST_SECONDS = 60
LOAD_FACTORS = (0.2, 0.4, 0.6)
Case = Callable[[], str]


def main() -> None:
    """Print the cases that are named, or all, and what came of each."""
    found = {name: _outcome(CASES[name]) for name in sys.argv[1:] or CASES}
    json.dump(found, sys.stdout, indent=1)


def _outcome(case: Case) -> str:
    def ended(*_: object) -> None:
        raise TimeoutError

    signal(SIGALRM, ended)
    alarm(LONGEST_SECONDS)
    try:
        return case()
    except TimeoutError:
        return f"no end in {LONGEST_SECONDS} s"
    except Exception as error:  # noqa: BLE001 - what a script would see is the outcome
        kind = getattr(getattr(error, "error_type", None), "name", type(error).__name__)
        return f"{kind}: {shorten(str(error).splitlines()[0], 110, placeholder=' ...')}"
    finally:
        alarm(0)


def _coded() -> EmbeddingBagCollectionSharder:
    config = QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.BF16)
    return EmbeddingBagCollectionSharder(qcomm_codecs_registry=get_qcomm_codecs_registry(config))


def _cached() -> str:
    """Plan caches of given shares; say the steps, and the shares in the plans."""
    told = []
    for share in LOAD_FACTORS:
        cache = CacheParams(load_factor=share)
        kernels = constraints(compute_kernels=["fused_uvm_caching"], cache_params=cache)
        planner, _ = planned(constrained=kernels)
        tables = planner.solution.workload.tables, planner.solution.plan.tables
        asked, chosen = ({each.cache_load_factor for each in some} - {None} for some in tables)
        held = ", ".join(f"{each:.3g}" for each in sorted(chosen or asked))
        told.append(f"{step(planner)} with {held}")
    return "; ".join(told)


def _cached_in_file() -> str:
    """Plan a workload file with caches of given shares; say those in the plans."""
    told = []
    for share in LOAD_FACTORS:
        text = (
            "name: cached\nlocal_batch_size: 16384\ntables:\n  - {name: t, num_embeddings: 2000000,"
            " embedding_dim: 128, pooling_factor: 20, compute_kernels: [fused_uvm_caching], "
            f"cache_load_factor: {share}}}\n"
            "dense: {num_dense_features: 1, bottom_mlp: [128], top_mlp: [1]}\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "cached.yaml").write_text(text, encoding="utf-8")
            options = ["--gpus", str(GPUS), "--hardware", "h100-sxm", "--time-limit", "1"]
            command = [sys.executable, "-m", "planner", "plan", "cached.yaml", *options]
            subprocess.run(  # noqa: S603 - our own command
                [*command, "-o", "plan.json"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                check=True,
                capture_output=True,
            )
            plan = Path(folder, "plan.json").read_text(encoding="utf-8")
        held = re.findall(r'"cache_load_factor": ([\d.]+)', plan)
        told.append(f"{float(held[-1]):.3g}")
    return ", ".join(told)


def _uneven() -> str:
    """Plan for a rank with 2 GiB beside seven with 80; say what they hold of the weights."""
    caps = [80 * GIB] * 7 + [2 * GIB]
    data = CustomTopologyData(data={"hbm_cap": caps}, world_size=GPUS)
    planner, plan = planned(over=topology(custom_topology_data=data))
    held = [0.0] * GPUS
    for sharding in (each for module in plan.plan.values() for each in module.values()):
        if sharding.sharding_spec is None:
            continue
        for shard in sharding.sharding_spec.shards:
            rows, columns = shard.shard_sizes
            held[shard.placement.rank()] += 4 * rows * columns / GIB
    most = max(held[:-1])
    return f"{step(planner)}; {most:.1f} GiB on the fullest of the others, {held[-1]:.1f} on it"


def _deduplicated(*, unique: bool) -> Case:
    def case() -> str:
        sharder = EmbeddingCollectionSharder(use_index_dedup=unique)
        return step(planned(sequences(*names()), [sharder])[0])

    return case


def _beside(module: Case | Callable[[], nn.Module], *sharders: Any, **constraint: Any) -> Case:  # noqa: ANN401
    """Return the case of a module with a table ``other`` beside a plain one."""

    def case() -> str:
        model = nn.ModuleDict({"plain": bags("plain"), "other": module()})
        own = {"other": ParameterConstraints(**constraint)} if constraint else {}
        planner, plan = planned(model, [*sharders, *get_default_sharders()], constrained=own)
        return f"{kinds(plan, 'other', 'second')}; {step(planner)}"

    return case


def _hashed() -> nn.Module:
    config = EmbeddingBagConfig(
        name="other", num_embeddings=1_000_000, embedding_dim=128, feature_names=["f_other"]
    )
    remapped = MCHManagedCollisionModule(
        zch_size=1_000_000,
        device=META,
        eviction_interval=2,
        eviction_policy=DistanceLFU_EvictionPolicy(),
    )
    return ManagedCollisionEmbeddingBagCollection(
        EmbeddingBagCollection(tables=[config], device=META),
        ManagedCollisionCollection({"other": remapped}, [config]),
    )


def _processed() -> nn.Module:
    processors = PositionWeightedModuleCollection({"f_other": 20}, device=META)
    return FeatureProcessedEmbeddingBagCollection(bags("other", is_weighted=True), processors)


def _collided() -> nn.Module:
    from torchrec.modules.pec_embedding_modules import PECEmbeddingCollection

    made: nn.Module = PECEmbeddingCollection(sequences("other"))
    return made


def _pruned() -> nn.Module:
    pruning = GenericITEPModule(
        table_name_to_unpruned_hash_sizes={"other": 4_000_000}, lookups=None
    )
    return ITEPEmbeddingBagCollection(bags("other"), pruning)


def _towers() -> nn.Module:
    towers = [
        EmbeddingTower(embedding_module=bags(*names), interaction_module=nn.Linear(256, 8))
        for names in (("other", "second"), ("third", "fourth"))
    ]
    return EmbeddingTowerCollection(towers=towers)


def _tied() -> str:
    """Plan two towers of two tables on hosts of two GPUs; say whether a tower's stay together."""
    model = nn.ModuleDict({"plain": bags("plain"), "other": _towers()})
    sharders = [EmbeddingTowerCollectionSharder(), *get_default_sharders()]
    _, plan = planned(model, sharders, topology(**FOUR_HOSTS), {})
    hosts = {name: {rank // 2 for rank in each.ranks} for name, each in plan.plan["other"].items()}
    together = hosts["other"] == hosts["second"] and hosts["third"] == hosts["fourth"]
    return "each tower on a host" if together and len(hosts["other"]) == 1 else "spread"


def _virtual() -> nn.Module:
    return sequences("other", use_virtual_table=True, total_num_buckets=8)


def _failing(rows: int, memory: int, **constraint: Any) -> Case:  # noqa: ANN401
    own = {"a": ParameterConstraints(**constraint)} if constraint else {}
    small = {"hbm_cap": memory, "ddr_cap": memory}
    return lambda: step(
        planned(bags("a", rows=rows, dim=64), over=topology(**small), constrained=own)[0]
    )


def _never_fits() -> str:
    return step(planned(bags("a", rows=10_000_000, dim=10_000_000), constrained={})[0])


def _without_sharders() -> str:
    _, plan = planned(bags("a"), (), constrained={})
    return "an empty plan" if not plan.plan else "a plan"


class _Noting:
    """Statistics, a plan loader and callbacks that note that they were asked."""

    def __init__(self) -> None:
        self.asked = False

    def log(self, **_: object) -> None:
        self.asked = True

    def plan_context_hash(self) -> None:
        """Return that the context is not known."""

    def load(self) -> None:
        self.asked = True

    def __call__(self, options: Any) -> Any:  # noqa: ANN401 - sharding options
        self.asked = True
        return options


class _NotingEnumerator(EmbeddingEnumerator):  # type: ignore[misc]  # torchrec has no types here
    asked = False

    def populate_estimates(self, sharding_options: list[Any]) -> None:
        self.asked = True
        super().populate_estimates(sharding_options)


def _given(name: str, make: Callable[[], Any], **others: Any) -> Case:  # noqa: ANN401
    """Return the case of an argument of TorchRec's planner."""

    def case() -> str:
        given = make()
        with warnings_kept() as lines:
            arguments: dict[str, Any] = {name: [given] if name == "callbacks" else given}
            planned(**arguments, **others)
        if getattr(given, "asked", False):
            return "asked"
        named = [line.strip() for line in lines if f"EmbeddingShardingPlanner.{name}" in line]
        return f"warned: {named[0].partition(': ')[2]}" if named else "ignored"

    return case


def _by_path() -> str:
    model = nn.ModuleDict({"one": bags("a"), "two": bags("a")})
    own = {
        "a": ParameterConstraints(sharding_types=["table_wise"]),
        "two.a": ParameterConstraints(sharding_types=["table_row_wise"]),
    }
    _, plan = planned(model, constrained=own)
    return ", ".join(f"{path}.a {tables['a'].sharding_type}" for path, tables in plan.plan.items())


def _of_another_device() -> str:
    own = {"a": ParameterConstraints(device_group="cpu")}
    _, plan = planned(bags("a", "b"), constrained=own)
    return f"planned: {', '.join(sorted(plan.plan['']))}"


def _narrow() -> str:
    own = {"a": ParameterConstraints(sharding_types=["column_wise"], min_partition=64)}
    _, plan = planned(bags("a"), constrained=own)
    widths = {shard.shard_sizes[1] for shard in plan.plan[""]["a"].sharding_spec.shards}
    return f"column_wise, {', '.join(map(str, sorted(widths)))} columns a shard"


def _partly_given() -> str:
    whole = {"t0": ParameterConstraints(sharding_types=["row_wise"])}
    _, plan = planned(bags("t0"), constrained=whole)
    _, around = planned(bags("t0", "t1"), constrained={}, fixed_plan=plan)
    kept = around.plan[""]["t0"] == plan.plan[""]["t0"]
    return f"{'kept' if kept else 'changed'}, and t1 planned around it" * ("t1" in around.plan[""])


FOUR_HOSTS = {"local_world_size": 2}
CASES: Mapping[str, Case] = {
    "nothing set": lambda: step(planned()[0]),
    "`qcomm_codecs_registry`: FP16 forward, BF16 backward": lambda: step(
        planned(sharders=[_coded()])[0]
    ),
    "4 hosts of 2 GPUs": lambda: step(planned(over=topology(**FOUR_HOSTS))[0]),
    "4 hosts of 2 GPUs, the same codecs": lambda: step(
        planned(sharders=[_coded()], over=topology(**FOUR_HOSTS))[0]
    ),
    "4 hosts of 2 GPUs, `Topology(pod_size=4)`": lambda: step(
        planned(over=topology(**FOUR_HOSTS, pod_size=4))[0]
    ),
    "`ParameterConstraints(output_dtype=FP16)`": lambda: step(
        planned(constrained=constraints(output_dtype=DataType.FP16))[0]
    ),
    "`CacheParams(load_factor=0.2 / 0.4 / 0.6)`": _cached,
    "`cache_load_factor: 0.2 / 0.4 / 0.6` of a workload file": _cached_in_file,
    "unpooled": _deduplicated(unique=False),
    "unpooled, `use_index_dedup=True`": _deduplicated(unique=True),
    "rank 7 has 2 GiB, the others 80": _uneven,
    "a managed-collision module": _beside(_hashed),
    "a feature-processed module": _beside(_processed),
    "a PEC module": _beside(_collided),
    "an ITEP module": _beside(_pruned, ITEPEmbeddingBagCollectionSharder()),
    "a tower collection": _beside(_towers, EmbeddingTowerCollectionSharder()),
    "two towers of two tables, 4 hosts of 2 GPUs": _tied,
    "a key-value table": _beside(
        lambda: bags("other"), compute_kernels=["key_value"], sharding_types=["row_wise"]
    ),
    "a virtual table": _beside(
        _virtual, compute_kernels=["dram_virtual_table"], sharding_types=["row_wise"]
    ),
    "a table of 10,000,000 x 10,000,000": _never_fits,
    "no sharders": _without_sharders,
    "constraints that leave nothing": _failing(1000, GIB, sharding_types=["nonsense"]),
    "a table, whole, that only fits in parts": _failing(
        5_000_000, GIB, sharding_types=["table_wise"], compute_kernels=["fused"]
    ),
    "memory below a GiB": _failing(50_000, 2**20, compute_kernels=["fused"]),
    "`proposer=`": _given("proposer", UniformProposer),
    "`performance_model=`": _given("performance_model", lambda: NoopPerfModel(topology())),
    "`plan_loader=`": _given("plan_loader", _Noting),
    "`enumerator=`": _given(
        "enumerator", lambda: _NotingEnumerator(topology(), 16_384), stats=NoopEmbeddingStats()
    ),
    "`stats=`": _given("stats", _Noting),
    "`callbacks=`": _given("callbacks", _Noting),
    "`a`: `table_wise`, and by module path `two.a`: `table_row_wise`": _by_path,
    '`device_group="cpu"` of table a, on GPUs': _of_another_device,
    "`min_partition=64` of 128 columns": _narrow,
    "a plan given for one table of two": _partly_given,
}
"""By what a script says."""

if __name__ == "__main__":
    main()
