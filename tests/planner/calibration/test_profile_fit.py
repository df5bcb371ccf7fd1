import numpy as np
import pytest
from calibration_cases import (
    BACKWARD_OP_TIME,
    ELEMENT_TIMES,
    FACTS,
    L2_BYTES,
    MACHINE,
    OP_TIME,
    VECTOR_TIME,
    measured,
    record,
)

from costmodel.base.units import GB, MIB, US
from costmodel.domain.hardware import CollectiveOp, Device
from costmodel.domain.time_correction import NO_CORRECTION
from costmodel.domain.workload import DataType
from costmodel.kernels.collectives import RankGroup, collective_time
from costmodel.kernels.gemm import gemm_time
from costmodel.kernels.pointwise import pointwise_time
from planner.calibration.enough import TooFewPointsError
from planner.calibration.fit_host import fit_host
from planner.calibration.fit_operators import MOVED
from planner.calibration.fit_stream import StreamSetting, fit_stream, streams
from planner.calibration.points import (
    Family,
    HostPart,
    HostPoint,
    StreamOp,
    StreamPoint,
)
from planner.calibration.profile import Calibrated, fit_profile
from planner.calibration.records import Measured, Record
from planner.files.profiles import dump_profile, load_profile, parse_profile

pytestmark = pytest.mark.slow  # whole calibrations are fitted


@pytest.fixture(scope="module")
def calibrated() -> Calibrated:
    return fit_profile(measured(), MACHINE)


def test_a_profile_reads_back_as_written(calibrated: Calibrated) -> None:
    text = dump_profile(calibrated.profile)
    again = parse_profile(text, "calibrated")
    assert dump_profile(again) == text
    assert again.device is Device.CPU


def test_every_number_has_a_source_with_machine_and_date(calibrated: Calibrated) -> None:
    sources = calibrated.profile.sources
    for name in ("gpu.lookup_efficiency", "gpu.row_update_time", "host.op_time", "gpu.gemm.fp32"):
        assert "test core" in sources[name]
        assert "2026-01-02" in sources[name]


def test_families_say_points_errors_and_ranges(calibrated: Calibrated) -> None:
    families = calibrated.profile.families
    other = {"memory_bound", "operators", "host"}
    assert {"embedding_forward", "embedding_backward", *other} == families.keys()
    assert all(family.num_points and family.error is not None for family in families.values())
    assert families["embedding_forward"].ranges["embedding_dim"] == (4, 512)


def test_known_times_are_predicted(calibrated: Calibrated) -> None:
    profile = calibrated.profile
    group = RankGroup(num_ranks=2, ranks_per_node=2)
    exchange = float(collective_time(CollectiveOp.ALL_TO_ALL, 8 * MIB, group, profile))
    assert exchange == pytest.approx(50 * US + 8 * MIB / (4 * GB), rel=0.05)
    assert pointwise_time(8 * MIB, profile.gpu) == pytest.approx(8 * MIB / (20 * GB), rel=0.05)
    product = float(gemm_time(4096, 512, 512, DataType.FP32, profile.gpu))
    assert product == pytest.approx(2 * 4096 * 512 * 512 / 80e9, rel=0.1)


def test_an_element_of_an_operator_takes_what_it_does_beyond_memory(calibrated: Calibrated) -> None:
    found = calibrated.profile.gpu.element_times
    for name in MOVED.keys() - {"native_dropout"}:
        told = ELEMENT_TIMES.get(name, 0.0)
        assert found.get(name, 0.0) == pytest.approx(told, rel=0.02, abs=1e-10), name
    assert calibrated.profile.families["operators"].error == pytest.approx(0.0, abs=0.02)


def test_the_hosts_part_of_a_lookup_is_not_counted_twice(calibrated: Calibrated) -> None:
    host = calibrated.profile.host
    assert host.op_time == pytest.approx(OP_TIME, rel=1e-3)
    assert host.backward_op_time == pytest.approx(BACKWARD_OP_TIME, rel=1e-3)
    assert host.launch_time == 0.0
    assert calibrated.profile.families["embedding_forward"].error == pytest.approx(0, abs=0.02)


def test_a_single_process_takes_what_it_lacks_from_a_profile() -> None:
    alone = tuple(r for r in measured().records if "collective" not in r.seconds)
    base = load_profile("v100-nvlink")
    found = fit_profile(Measured(machine=FACTS, records=alone), MACHINE, base).profile
    assert found.curves == base.curves
    assert found.intra_node == base.intra_node
    assert (
        "assumed"
        in fit_profile(Measured(machine=FACTS, records=alone), MACHINE).profile.sources[
            "intra_node.bandwidth"
        ]
    )


def test_memory_that_the_system_maps_anew_is_left_out_and_said() -> None:
    sizes = [2**i for i in range(14, 28)]
    records = [record(StreamPoint(op=StreamOp.COPY, num_bytes=size)) for size in sizes]
    slow = [
        Record(point=r.point, seconds={"operator": 7 * r.seconds["operator"]})
        if r.point.num_bytes >= 2**26  # type: ignore[union-attr] # half of it is written
        else r
        for r in records
    ]
    fit = fit_stream(slow, StreamSetting(maps_anew=True))
    assert fit.bandwidth == pytest.approx(20 * GB, rel=0.01)
    assert fit.fresh_bandwidth == pytest.approx(20 * GB / 7, rel=0.05)
    assert fit_stream(slow).fresh_bandwidth is None


def test_times_that_do_not_grow_with_the_size_still_give_a_bandwidth() -> None:
    disturbed = [
        Record(point=StreamPoint(op=StreamOp.COPY, num_bytes=size), seconds={"operator": seconds})
        for size, seconds in ((2**14, 4e-3), (2**15, 3e-3), (2**16, 2e-3), (2**17, 1e-3))
    ]
    fit = fit_stream(disturbed)
    assert 0 < fit.bandwidth < float("inf")


def test_a_bandwidth_is_that_of_memory_where_caches_are_faster() -> None:
    sizes = [2**i for i in range(14, 29)]
    records = [record(StreamPoint(op=StreamOp.COPY, num_bytes=size)) for size in sizes]
    cached = [
        Record(point=r.point, seconds={"operator": r.seconds["operator"] / 3})
        if r.point.num_bytes < L2_BYTES  # type: ignore[union-attr]
        else r
        for r in records
    ]
    fit = fit_stream(cached, StreamSetting(cache_bytes=L2_BYTES))
    assert fit.bandwidth == pytest.approx(20 * GB, rel=0.05)
    assert fit_stream(cached).bandwidth > 25 * GB


def test_launches_of_a_gpu_are_taken_off_the_operators() -> None:
    walls = {
        HostPart.LOOKUP: {
            "forward": 26 * 8 * US + 8 * 4 * US,
            "backward": (10 + 6) * 8 * US + 14 * 4 * US,  # six operators begin a backward
        },
        HostPart.LAYER: {"forward": 8 * 12 * US, "backward": 16 * 12 * US + 6 * 8 * US},
        HostPart.LAUNCH: {"call": 4 * US},
        HostPart.OPERATOR: {"many": 12 * US, "until_done": 20 * US},
        HostPart.SYNCHRONIZE: {"return": 5 * US},
    }
    records = [
        Record(point=HostPoint(part=part), seconds=dict.fromkeys(wall, np.nan), wall=wall)
        for part, wall in walls.items()
    ]
    times = fit_host(records, synchronous=False).times
    assert times["op_time"] == pytest.approx(8 * US)
    assert times["backward_op_time"] == pytest.approx(8 * US)
    assert times["launch_latency"] == pytest.approx(3 * US)
    assert times["sync_time"] == pytest.approx(5 * US)


def test_other_operators_of_a_core_reach_their_own_share_of_the_bandwidth() -> None:
    # 20 GB/s for copies, 10 GB/s for views, 40 GB/s in place
    rates = {StreamOp.COPY: 20 * GB, StreamOp.VIEWS: 10 * GB, StreamOp.IN_PLACE: 40 * GB}
    records = [
        Record(point=StreamPoint(op=op, num_bytes=2**i), seconds={"operator": 5 * US + 2**i / rate})
        for op, rate in rates.items()
        for i in range(14, 29)
    ]
    fit = fit_stream(records, StreamSetting(on_core=True))
    assert fit.bandwidth == pytest.approx(20 * GB, rel=0.01)
    assert fit.shares == {
        StreamOp.VIEWS: pytest.approx(0.5, rel=0.01),
        StreamOp.IN_PLACE: pytest.approx(2.0, rel=0.01),
    }
    assert (fit.num_points, fit.num_others) == (15, 30)
    assert fit_stream(records).shares == {}


def test_a_correction_of_copies_is_kept_where_it_errs_less_on_sizes_held_out() -> None:
    # 20 GB/s from 4 MiB on, four times as fast below: one line cannot say so
    def seconds(size: int) -> float:
        return size / (80 * GB) if size < 2**22 else 2**22 / (80 * GB) + (size - 2**22) / (20 * GB)

    records = [
        Record(point=StreamPoint(op=op, num_bytes=2**i + more), seconds={"operator": seconds(2**i)})
        for op in StreamOp
        for i in range(14, 29)
        for more in (0, 4)
    ]
    fit = fit_stream(records, StreamSetting(on_core=True, cache_bytes=2**20))
    assert fit.correction == fit.learned
    assert fit.correction.knots
    points = list(streams(records))
    measured = np.array([point.seconds for point in points])
    wrong, better = (
        float(np.mean(np.abs(fit.predicted(points, each) / measured - 1)))
        for each in (NO_CORRECTION, fit.correction)
    )
    assert better < 0.5 * wrong


def test_no_correction_is_kept_of_what_differs_from_size_to_size() -> None:
    # a fifth too long and too short in turns: of sizes held out nothing is known
    records = [
        Record(
            point=StreamPoint(op=op, num_bytes=2**i),
            seconds={"operator": 2**i / (20 * GB) * 1.2 ** (-1) ** i},
        )
        for op in StreamOp
        for i in range(14, 29)
    ]
    fit = fit_stream(records, StreamSetting(on_core=True))
    assert fit.learned.knots
    assert fit.correction == NO_CORRECTION


def test_batched_products_say_what_a_vector_takes(calibrated: Calibrated) -> None:
    constants = calibrated.profile.gpu.gemm["fp32"]
    assert constants.num_points == 150  # the others are products one at a time
    assert constants.vector_time == pytest.approx(VECTOR_TIME, rel=0.25)
    assert calibrated.errors["batched products"].median < 0.2


def test_a_cores_shares_are_in_its_profile(calibrated: Calibrated) -> None:
    gpu = calibrated.profile.gpu
    assert gpu.view_efficiency == pytest.approx(1.0, rel=0.01)
    assert "test core" in calibrated.profile.sources["gpu.view_efficiency"]


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (Family.EMBEDDING, "sets of tables with fused lookups measured, at least 2 needed"),
        (Family.STREAM, "sizes of copies and sums measured, at least 4 needed"),
        (Family.GEMM, "products measured, at least"),
        (Family.HOST, "pieces of host work measured, at least 2 needed"),
    ],
)
@pytest.mark.parametrize("kept", [0, 1])
def test_too_few_points_are_an_error_that_names_the_family(
    family: Family, message: str, kept: int
) -> None:
    records = measured().records
    few = [record for record in records if record.point.family == family][:kept]
    others = [record for record in records if record.point.family != family]
    with pytest.raises(TooFewPointsError, match=message) as error:
        fit_profile(Measured(machine=FACTS, records=(*few, *others)), MACHINE)
    assert f"`{family}`" in str(error.value)
    assert "the same command" in str(error.value.hint)
