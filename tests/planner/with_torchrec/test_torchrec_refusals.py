"""What fits in memory in TorchRec's seat, what is refused, and how."""

from types import SimpleNamespace

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
import torch.distributed as dist
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    PlannerError,
    PlannerErrorType,
    Topology,
)
from torchrec.distributed.types import CacheParams, ShardingPlan
from torchrec_cases import (
    GIB,
    META,
    QUIET,
    SHARDERS,
    bags,
    embedding_bags,
    features,
    gpus,
    on_ranks,
    planner,
    solved,
    table,
)

from costmodel.base.errors import InputError
from costmodel.domain.workload import DenseModel
from planner.torchrec import IterationTimePlanner, read_factory
from planner.torchrec.collective import shared_question
from planner.torchrec.error_types import INPUT_VALIDATION


def test_a_table_no_rank_can_hold_goes_to_host_memory_or_is_refused() -> None:
    module = bags(table("huge", rows=50_000_000, dim=64))  # 12.8 GB
    topology = gpus(2, hbm_cap=2 * GIB)
    plan = IterationTimePlanner(topology, 64, timeout_seconds=0.5).plan(module, SHARDERS)
    assert plan.plan[""]["huge"].compute_kernel in {"fused_uvm", "fused_uvm_caching"}
    fused = {"huge": ParameterConstraints(compute_kernels=["fused"])}
    with pytest.raises(PlannerError, match="GiB") as raised:
        IterationTimePlanner(topology, 64, constraints=fused).plan(module, SHARDERS)
    assert raised.value.error_type is PlannerErrorType.INSUFFICIENT_STORAGE


def test_neither_gpus_nor_hosts_can_hold_it() -> None:
    topology = Topology(
        world_size=2,
        compute_device="cuda",
        hbm_cap=2 * GIB,
        ddr_cap=2 * GIB,
        **QUIET,
    )
    with pytest.raises(PlannerError) as raised:
        IterationTimePlanner(topology, 64).plan(bags(table("huge", rows=50_000_000)), SHARDERS)
    assert raised.value.error_type is PlannerErrorType.INSUFFICIENT_STORAGE
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("no plan fits: the tables need 11.9 GiB")
    assert any(line.startswith("host: 11.9 GiB of weights, and 3.6 GiB of host") for line in lines)
    # 11.9 GiB by 1.8 of each: 6 ranks leave 10.8, 7 leave 12.6
    assert any(line.startswith("world size 7: a plan that fills ") for line in lines)


def test_what_would_fit_without_its_constraints_is_not_called_insufficient_memory() -> None:
    # 0.5 GB, whole, on ranks that have 0.36 GiB each for tables
    module, topology = bags(table("a", rows=2_000_000)), gpus(2, hbm_cap=int(0.4 * GIB))
    whole = {"a": ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])}
    with pytest.raises(PlannerError) as raised:
        IterationTimePlanner(topology, 64, constraints=whole).plan(module, SHARDERS)
    assert raised.value.error_type is PlannerErrorType.STRICT_CONSTRAINTS
    split = {"a": ParameterConstraints(sharding_types=["row_wise"], compute_kernels=["fused"])}
    plan = IterationTimePlanner(topology, 64, constraints=split).plan(module, SHARDERS)
    assert plan.plan[""]["a"].sharding_type == "row_wise"


@pytest.mark.parametrize("percentage", [1.0, 0.9])
def test_what_a_storage_reservation_keeps_is_named_and_no_batch_is_blamed(
    percentage: float,
) -> None:
    """Of 2 GiB all, or 1.8: smaller batches do not make it less, as far as the planner knows."""
    topology = gpus(2, hbm_cap=2 * GIB)
    reservation = FixedPercentageStorageReservation(percentage)
    fused = {"a": ParameterConstraints(compute_kernels=["fused"])}
    made = IterationTimePlanner(
        topology, 64, constraints=fused, storage_reservation=reservation, timeout_seconds=0.5
    )
    with pytest.raises(PlannerError) as raised:
        made.plan(bags(table("a", rows=20_000_000)), SHARDERS)
    lines = dict(line.split(": ", 1) for line in str(raised.value).splitlines())
    kept = f"{2 * percentage:.1f} GiB that FixedPercentageStorageReservation keeps"
    assert lines["per GPU"].startswith(f"2.0 GiB HBM  -  {kept}  =  0.")
    assert not [label for label in lines if label.startswith("local_batch_size")]
    told = "hint" if percentage == 1.0 else "world size "
    assert [label for label in lines if label.startswith(told)]


def test_small_sizes_are_told_in_small_units() -> None:
    topology = gpus(2, hbm_cap=2**20)
    fused = {"a": ParameterConstraints(compute_kernels=["fused"])}
    model = bags(table("a", rows=50_000))
    with pytest.raises(PlannerError, match=r"the tables need 1\d\.\d MiB, .* leave 1\.\d MiB"):
        IterationTimePlanner(topology, 64, constraints=fused).plan(model, SHARDERS)
    with pytest.raises(PlannerError, match="no plan fits, even without any table"):
        IterationTimePlanner(topology, 16_384, constraints=fused).plan(model, SHARDERS)


def test_what_is_larger_than_any_memory_is_refused_at_once() -> None:
    huge = bags(table("a", rows=10_000_000, dim=10_000_000))
    with pytest.raises(PlannerError, match=r"372,529\.0 GiB of weights") as raised:
        IterationTimePlanner(gpus(2), 64).plan(huge, SHARDERS)
    assert raised.value.error_type is PlannerErrorType.INSUFFICIENT_STORAGE


def test_a_table_on_the_host_does_not_take_others_there() -> None:
    asked = {"a": ParameterConstraints(compute_kernels=["fused_uvm"])}
    planner = IterationTimePlanner(gpus(), 64, constraints=asked, timeout_seconds=0.3)
    plan = planner.plan(bags(table("a"), table("b")), SHARDERS).plan[""]
    assert plan["a"].compute_kernel == "fused_uvm"
    assert plan["b"].compute_kernel in {"fused", "dense"}


@pytest.mark.parametrize("kernel", ["fused_uvm", "fused_uvm_caching"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_host_memory_kernels_are_taken_where_torchrec_takes_them(kernel: str, device: str) -> None:
    constraints = {"a": ParameterConstraints(compute_kernels=[kernel])}
    taken = []
    for make in (EmbeddingShardingPlanner, IterationTimePlanner):
        planner = make(
            topology=on_ranks(2, 2, device),
            batch_size=64,
            constraints=constraints,
            storage_reservation=FixedPercentageStorageReservation(0.1),
            timeout_seconds=0.5,
        )
        try:
            plan = planner.plan(bags(table("a")), SHARDERS)
        except (PlannerError, RuntimeError):  # theirs is a RuntimeError
            taken.append(None)
        else:
            taken.append(plan.plan[""]["a"].compute_kernel)
    assert taken == [kernel if device == "cuda" else None] * 2


@pytest.mark.parametrize(
    ("constraint", "part"),
    [
        (ParameterConstraints(sharding_types=["row_wise"]), "row_wise"),
        (ParameterConstraints(compute_kernels=["fused_uvm"]), "fused_uvm"),
        (ParameterConstraints(sharding_types=["nonsense"]), "nonsense"),
        (ParameterConstraints(sharding_types=["colum_wise"]), "did you mean `column_wise`"),
        (ParameterConstraints(compute_kernels=["fusedd"]), "did you mean `fused`"),
    ],
)
def test_constraints_that_leave_nothing_are_refused(
    constraint: ParameterConstraints, part: str
) -> None:
    planner = IterationTimePlanner(on_ranks(2, 2), 64, constraints={"a": constraint})
    with pytest.raises(PlannerError, match=f"table `a` cannot be sharded.*{part}") as raised:
        planner.plan(bags(table("a")), SHARDERS)
    assert raised.value.error_type is PlannerErrorType.STRICT_CONSTRAINTS


def test_what_to_do_about_it_is_said() -> None:
    whole = {"a": ParameterConstraints(sharding_types=["table_wise"])}
    planner = IterationTimePlanner(gpus(), 64, constraints=whole)
    with pytest.raises(
        PlannerError, match="table `a` cannot be sharded: nothing is left"
    ) as raised:
        planner.plan(bags(table("a", dim=4096)), SHARDERS)
    (hint,) = str(raised.value).splitlines()[1:]
    assert hint.startswith("hint: FBGEMM's GPU kernels take shards of at most 2,048 columns: split")


@pytest.mark.parametrize(
    ("model", "sharders"), [(torch.nn.Linear(2, 2), SHARDERS), (bags(table("a")), ())]
)
def test_nothing_to_shard_is_an_empty_plan(
    model: torch.nn.Module, sharders: tuple[object, ...], caplog: pytest.LogCaptureFixture
) -> None:
    planner = IterationTimePlanner(gpus(), 64)
    assert planner.plan(model, sharders) == ShardingPlan({})
    assert planner.solution is None
    assert "no embedding tables" in caplog.text


def test_no_constraints_and_sharders_that_are_read_once_are_taken() -> None:
    made = IterationTimePlanner(gpus(), 64, constraints={"a": None}, sharder="cost_greedy")
    assert set(made.plan(bags(table("a")), iter(SHARDERS)).plan[""]) == {"a"}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (features(0, 8), "KeyedJaggedTensor"),
        ({"a": features(0, 8)}, "dict"),
        ([1], "list of int"),
        ([{"a": 1}], "list of dict"),
        ([SimpleNamespace(sparse_features=[8])], "list of .*sparse_features are a l"),
        ("ab", "str"),
        (3, "int"),
    ],
)
def test_sample_batches_are_a_list_of_batches(given: object, what: str) -> None:
    said = f"sample_batches must be a list of KeyedJaggedTensors, or of batches .*, got a {what}"
    with pytest.raises(PlannerError, match=said):
        IterationTimePlanner(gpus(), 64, sample_batches=given)


@pytest.mark.parametrize(
    ("device", "hardware", "said"),
    [
        (
            "cpu",
            "h100-sxm",
            "predicting for h100-sxm, a profile of GPUs, and the topology is of cpu",
        ),
        (
            "cuda",
            "cpu-gloo",
            "predicting for cpu-gloo, a profile of CPU ranks, and the topology is",
        ),
        ("cpu", "cpu-gloo", ""),
    ],
)
def test_a_profile_of_another_device_is_warned_of(
    device: str, hardware: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    IterationTimePlanner(on_ranks(2, 2, device), 64, hardware=hardware)
    assert said in caplog.text
    assert ("predicting for" in caplog.text) == bool(said)


@pytest.mark.parametrize("name", ["num_poolings", "batch_sizes"])
def test_as_many_values_of_each_kind_are_wanted(name: str) -> None:
    # TorchRec's planner fails at an assertion
    lists = ParameterConstraints(**{"pooling_factors": [3.0] * 3, name: [2, 2]})
    with pytest.raises(
        PlannerError, match=f"table `a`: .*3 values of `pooling_factors`, 2 values of `{name}`"
    ):
        planner(constraints={"a": lists}).plan(bags(table("a")), SHARDERS)


def test_a_sharder_that_offers_nothing_is_named() -> None:
    class Nothing(EmbeddingBagCollectionSharder):  # type: ignore[misc]
        """As the sharders of managed collision are on CPU."""

        def sharding_types(self, compute_device_type: str) -> list[str]:
            del compute_device_type
            return []

    with pytest.raises(PlannerError, match="on cuda Nothing offers no sharding type; plan for"):
        planner().plan(bags(table("a")), [Nothing()])


@pytest.mark.parametrize("share", [-0.1, 0.0, 1.0, 1.5])
def test_a_cache_of_nothing_or_of_everything_is_refused(share: float) -> None:
    # as by TorchRec, of which some versions say so
    params = CacheParams(load_factor=share)
    cached = ParameterConstraints(compute_kernels=["fused_uvm_caching"], cache_params=params)
    said = r"table `a`: .* between 0 and 1, got .*; compute_kernels=\[.fused.\] plans without"
    with pytest.raises(PlannerError, match=said) as raised:
        IterationTimePlanner(gpus(), 64, constraints={"a": cached}).plan(bags(table("a")), SHARDERS)
    assert raised.value.error_type is INPUT_VALIDATION


def test_the_size_of_a_cache_that_is_not_used_does_not_matter() -> None:
    params = CacheParams(load_factor=0.0)
    fused = ParameterConstraints(compute_kernels=["fused"], cache_params=params)
    planner = IterationTimePlanner(gpus(), 64, constraints={"a": fused}, timeout_seconds=0.1)
    assert planner.plan(bags(table("a")), SHARDERS).plan[""]["a"].cache_params == params


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"topology": on_ranks(6, 4, "cuda")}, "the topology: world_size 6 is not a multiple of"),
        ({"batch_size": -5}, "the training loop: local_batch_size must be at least 1, got -5"),
        ({"gradient_accumulation_steps": 0}, "the training loop: gradient_accumulation_steps must"),
        ({"restore_site": -1}, "the training loop: restore_site must"),
        ({"constraints": {"a": ParameterConstraints(compute_kernels=[3])}}, "with kernels 3; on"),
        ({"constraints": {"a": ParameterConstraints(sharding_types=[3])}}, "sharding types 3 with"),
    ],
)
def test_what_the_cost_model_refuses_is_torchrecs_error(
    settings: dict[str, object], problem: str
) -> None:
    planner = IterationTimePlanner(**{"topology": gpus(), "batch_size": 64, **settings})
    with pytest.raises(PlannerError, match=problem):
        planner.plan(bags(table("a")), SHARDERS)


def test_constraints_that_leave_torchrec_nothing_are_refused() -> None:
    kinds = ParameterConstraints(compute_kernels=["key_value"], sharding_types=["nonsense"])
    planner = IterationTimePlanner(gpus(), 64, constraints={"a": kinds})
    with pytest.raises(PlannerError, match="No available sharding type") as raised:
        planner.plan(bags(table("a")), SHARDERS)
    assert raised.value.error_type is PlannerErrorType.STRICT_CONSTRAINTS


@pytest.mark.parametrize(
    ("device", "kinds"), [("cuda", None), ("cuda", ["data_parallel"]), ("cpu", None)]
)
def test_an_odd_width_is_refused_by_table(device: str, kinds: list[str] | None) -> None:
    asked = {"a": ParameterConstraints(sharding_types=kinds)}
    planner = IterationTimePlanner(on_ranks(2, 2, device), 64, constraints=asked)
    with pytest.raises(PlannerError, match="table `a`: embedding_dim must be a multiple of 4"):
        planner.plan(bags(table("a", dim=6)), SHARDERS)


def test_a_replicated_table_of_odd_width_is_planned_on_cpu() -> None:
    # FBGEMM's dense lookup on CPUs takes any width, and trains it
    asked = {"a": ParameterConstraints(sharding_types=["data_parallel"])}
    planner = IterationTimePlanner(
        on_ranks(2, 2), 64, constraints=asked, hardware="cpu-gloo", timeout_seconds=0.1
    )
    plan = planner.plan(bags(table("a", dim=6), table("b")), SHARDERS).plan[""]
    assert (plan["a"].sharding_type, plan["a"].compute_kernel) == ("data_parallel", "dense")
    assert set(plan) == {"a", "b"}


def test_a_collective_plan_needs_a_process_group() -> None:
    assert not dist.is_initialized()
    with pytest.raises(PlannerError, match="init_process_group"):
        IterationTimePlanner(gpus(), 64).collective_plan(embedding_bags(), SHARDERS)


def with_layers(*layers: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.Sequential(bags(table("a")), *layers)


@pytest.mark.parametrize(
    ("widths", "problem"),
    [([2_000_000], "widths of top_mlp must be at most"), ([8] * 1_100, "layers of top_mlp must")],
)
def test_layers_that_cannot_be_counted_are_refused_unless_others_are_given(
    widths: list[int], problem: str
) -> None:
    layers = (torch.nn.Linear(8, width, device=META) for width in widths)
    module = with_layers(*layers)
    with pytest.raises(
        PlannerError, match=rf"linear layers.*dense=DenseModel.*{problem}"
    ) as raised:
        planner().plan(module, SHARDERS)
    assert raised.value.error_type is INPUT_VALIDATION
    made, dense = planner(dense=DenseModel(top_mlp=(3, 1))), DenseModel(top_mlp=(3, 1))
    made.plan(module, SHARDERS)
    assert solved(made).workload.dense == dense


@pytest.mark.filterwarnings("ignore")  # of torch, about these layers
def test_layers_without_weights_are_no_work() -> None:
    pairs = [(0, 4), (8, 5), (3, 0)]
    layers = [torch.nn.Linear(*each, device=META) for each in pairs]
    made = planner()
    made.plan(with_layers(*layers, torch.nn.LazyLinear(7, device=META)), SHARDERS)
    assert solved(made).workload.dense.top_mlp == (5,)


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        ("too_wide", r"linear layers.*dense=DenseModel.*widths of top_mlp must be at most"),
        ("on_ranks", "it is called without arguments: missing a required argument: 'world_size'"),
        ("leaving", "it raised SystemExit: 3"),
        ("awaited", "it is async"),
    ],
)
def test_functions_whose_model_cannot_be_read_are_refused(factory: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"no model can be read from .*{factory}`: .*{problem}"):
        read_factory(f"torchrec_cases:{factory}")


@pytest.mark.parametrize("error", [PlannerError("it is odd"), RuntimeError("it is odd")])
def test_a_rank_that_cannot_read_the_model_tells_the_others(error: Exception) -> None:
    def read() -> None:
        raise error

    assert "it is odd" in str(dict(shared_question(gpus(), 64, read))["the list of tables"])
