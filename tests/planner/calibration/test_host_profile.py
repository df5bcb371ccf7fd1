from costmodel.domain.hardware import Source
from planner.calibration.curves import Accuracy
from planner.calibration.fit_host import HostFit
from planner.calibration.host_profile import host_profile
from planner.files.profiles import dump_profile, load_profile, parse_profile

FIT = HostFit(
    times={"op_time": 8e-6, "backward_op_time": 11e-6},
    origins=dict.fromkeys(("op_time", "backward_op_time"), "measured: mean of two pieces"),
    errors=Accuracy(median=0.1, mape=0.1, gmae=0.1, p90=0.2),
    num_points=4,
)


def test_measured_times_replace_the_profile_s_and_say_on_which_cpu() -> None:
    base = load_profile("h200-sxm")
    made = host_profile(base, FIT, cpu="a CPU")
    assert (made.host.op_time, made.host.backward_op_time) == (8e-6, 11e-6)
    assert made.host.launch_time == base.host.launch_time
    assert made.gpu == base.gpu
    assert "a CPU" in made.sources["host.op_time"]
    assert base.kind("host.op_time") is Source.ASSUMED
    assert made.kind("host.op_time") is Source.MEASURED
    assert made.kind("host.launch_time") is Source.ASSUMED


def test_operators_of_lists_take_what_was_measured_too() -> None:
    base = load_profile("h200-sxm")
    assert base.host.listed_time(backward=False) > base.host.op_time
    made = host_profile(base, FIT, cpu="a CPU")
    assert made.host.listed_time(backward=False) == 8e-6
    assert made.host.listed_time(backward=True) == 11e-6
    assert parse_profile(dump_profile(made), "made.yaml") == made
