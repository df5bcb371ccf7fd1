from pathlib import Path

import pytest
from execution_trace_files import EtMaker, rank, tensor, write_job

from bench.nlp.cpu_graph import machine_of
from bench.nlp.cpu_profile import read_cpu_profile
from costmodel.base.errors import InputError
from planner.traces.predict.prediction import Prediction, predict_documents
from planner.traces.trace_files import read_documents


def predicted(folder: Path, *makers: EtMaker) -> Prediction:
    documents = read_documents(write_job(folder / "job", *makers))
    profile = read_cpu_profile(folder / "core.yaml")
    return predict_documents(documents, "job", "core", lambda n: machine_of(profile, n, "job"))


def test_a_step_on_one_core_by_hand(tmp_path: Path) -> None:
    # host: 100 us a step, 3 calls from Python at 10, a function 5, a gradient 20 = 155 us;
    # kernels: two products of 2,000 FLOP at 1 ns = 4 us, relu 1 us, mul_ 2 us = 7 us;
    # the all-reduce of 400 bytes: 20 us of the core's work, then 30 us of waiting
    made = predicted(tmp_path, rank(), rank())
    assert made.step_time == pytest.approx(155e-6 + 7e-6 + 50e-6)
    assert [each.predicted for each in made.ranks] == pytest.approx([212e-6, 212e-6])


def test_a_slower_rank_holds_up_the_other(tmp_path: Path) -> None:
    # nine more products and calls: 9 x (2 + 10) us
    made = predicted(tmp_path, rank(), rank(work=10))
    assert made.ranks[0].predicted == pytest.approx(212e-6 + 108e-6)


def test_backward_hides_the_waiting_of_a_bucket_not_its_work(tmp_path: Path) -> None:
    def ranks() -> EtMaker:
        maker = rank()
        *before, optimizer, update = maker.nodes
        maker.nodes = before
        late = maker.add("autograd::engine::evaluate_function: ReluBackward0")
        maker.add("aten::relu", [tensor(10_000)], [tensor(10_000)], parent=late)
        maker.nodes += [optimizer | {"id": 90}, update | {"id": 91, "ctrl_deps": 90}]
        return maker

    # another 5 us of autograd and 100 us of relu: more than the 30 us of waiting
    made = predicted(tmp_path, ranks(), ranks())
    assert made.step_time == pytest.approx(155e-6 + 7e-6 + 20e-6 + 105e-6)


def test_stages_of_a_rank_add_up_to_its_work(tmp_path: Path) -> None:
    made = predicted(tmp_path, rank(), rank())
    stages = {stage.value: seconds for stage, seconds in made.ranks[0].stages.items()}
    assert stages == pytest.approx({
        "host": 155e-6,
        "all_reduce": 50e-6,
        "dense_forward": 3e-6,
        "dense_backward": 2e-6,
        "optimizer": 2e-6,
    })
    assert sum(made.timeline.breakdown().values()) == pytest.approx(made.step_time)


def test_unknown_operators_are_named_and_take_time(tmp_path: Path) -> None:
    def ranks() -> EtMaker:
        maker = rank()
        maker.add("mine::attention", [tensor(100_000)], [tensor(100_000)])
        return maker

    without, made = predicted(tmp_path, rank(), rank()), predicted(tmp_path, ranks(), ranks())
    (unknown,) = made.unknown
    assert (unknown.name, unknown.count) == ("mine::attention", 2)
    assert 0.5 < unknown.share < 1.0
    assert made.step_time > without.step_time + 50e-6


def test_all_reduces_of_other_numbers_of_ranks_are_not_made_up(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"traces of 3 ranks, but .* of 2 ranks"):
        predicted(tmp_path, rank(), rank(), rank())
