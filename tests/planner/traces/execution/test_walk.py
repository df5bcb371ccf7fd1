from execution_trace_files import FUNCTION, EtMaker, rank, tensor

from costmodel.domain.hardware import CollectiveOp
from planner.traces.execution.operator_trace import operator_traces
from planner.traces.execution.walk import RankWork, TracedWorkKind, rank_work


def walked(maker: EtMaker) -> RankWork:
    (trace,) = operator_traces([("rank0.json", maker.document())], "job")
    return rank_work(trace.steps[-1][1])


def test_a_step_under_ddp_in_order() -> None:
    items = walked(rank()).items
    assert [(item.kind.value, item.name, item.stage.value) for item in items] == [
        ("kernel", "aten::mm", "dense_forward"),
        ("kernel", "aten::relu", "dense_forward"),
        ("kernel", "aten::mm", "dense_backward"),
        ("collective", "c10d::allreduce_", "all_reduce"),
        ("wait", "end of backward", "dense_forward"),
        ("kernel", "aten::mul_", "optimizer"),
    ]
    assert items[3].collective is CollectiveOp.ALL_REDUCE
    assert items[3].num_bytes == 400
    assert not items[3].blocking


def test_counts_what_the_host_does_between_kernels() -> None:
    items = walked(rank()).items
    assert [item.before.python_calls for item in items] == [1, 1, 0, 0, 0, 1]
    assert [item.before.functions for item in items] == [0, 0, 1, 0, 0, 0]
    assert [item.before.accumulations for item in items] == [0, 0, 0, 1, 0, 0]
    assert [item.before.outermost for item in items[:2]] == [["aten::mm"], ["aten::relu"]]


def test_what_a_modelled_operator_calls_is_part_of_it() -> None:
    maker = EtMaker()
    outer = maker.add("aten::mul_", [tensor(100)])
    maker.add("aten::copy_", [tensor(1), tensor(1)], parent=outer)
    assert [item.name for item in walked(maker).items] == ["aten::mul_"]


def test_wrappers_are_left_for_what_they_call() -> None:
    maker = EtMaker()
    outer = maker.add("aten::linear", [tensor(4, 4), tensor(4, 4)])
    maker.add("aten::t", [tensor(4, 4)], parent=outer)
    maker.add("aten::addmm", [tensor(4), tensor(4, 4), tensor(4, 4)], parent=outer)
    (item,) = walked(maker).items
    assert (item.name, item.before.dispatches, item.before.python_calls) == ("aten::addmm", 2, 1)


def test_a_layer_that_also_calls_what_is_known_is_kept() -> None:
    maker = EtMaker()
    layer = maker.add("mine::lstm", [tensor(100)], [tensor(100, storage=7)])
    inner = maker.add("mine::layer", [tensor(100)], [tensor(100, storage=7)], parent=layer)
    maker.add("aten::add", [tensor(8), tensor(8)], [tensor(8, storage=6)], parent=inner)
    maker.add("aten::empty", [], [tensor(100, storage=7)], parent=inner)
    (item,) = walked(maker).items
    assert item.name == "mine::layer"


def test_an_operator_that_no_model_knows_is_kept() -> None:
    maker = EtMaker()
    outer = maker.add("mine::lookup", [tensor(100)], [tensor(100)])
    maker.add("aten::empty", [], [tensor(100)], parent=outer)
    (item,) = walked(maker).items
    assert item.name == "mine::lookup"


def test_functions_that_only_pass_gradients_on_are_no_kernels() -> None:
    maker = EtMaker()
    outer = maker.add(FUNCTION + "AddBackward0")
    maker.add("AddBackward0", [tensor(100)], [tensor(100)], parent=outer)
    maker.add("aten::relu", [tensor(100)], [tensor(100)])
    assert [item.name for item in walked(maker).items] == ["aten::relu"]


def test_a_collective_outside_backward_blocks() -> None:
    maker = EtMaker()
    maker.add("c10d::broadcast_", [tensor(100)], [tensor(100)])
    (item,) = walked(maker).items
    assert item.blocking


def test_an_optimizer_that_was_recorded_inside_a_hook_is_outside() -> None:
    maker = EtMaker()
    hook = maker.add(FUNCTION + "torch::autograd::AccumulateGrad")
    maker.add("c10d::allreduce_", [tensor(100)], [tensor(100)], parent=hook)
    maker.add("Optimizer.step#SGD.step", parent=hook)
    maker.add("aten::mul_", [tensor(100)], [tensor(100)], parent=hook)
    items = walked(maker).items
    assert [item.kind for item in items] == [
        TracedWorkKind.COLLECTIVE,
        TracedWorkKind.WAIT,
        TracedWorkKind.KERNEL,
    ]
    assert items[-1].stage.value == "optimizer"


def test_a_convolution_is_what_it_calls_and_by_itself_where_nothing_is_recorded() -> None:
    data, weight, result = tensor(2, 3, 9), tensor(4, 3, 5), tensor(2, 4, 9, storage=7)
    maker = EtMaker()
    outer = maker.add("aten::conv1d", [data, weight], [result])
    inner = maker.add("aten::convolution", [data, weight], [result], parent=outer)
    assert [item.name for item in walked(maker).items] == ["aten::convolution"]
    maker.add("aten::cudnn_convolution", [data, weight], [result], parent=inner)
    maker.add("aten::add_", [result, tensor(4)], [result], parent=inner)
    names = [item.name for item in walked(maker).items]
    assert names == ["aten::cudnn_convolution", "aten::add_"]


def test_a_backward_s_own_kernel_is_beside_those_that_it_calls() -> None:
    gradient, weight = tensor(2, 4, 9), tensor(4, 3, 5)
    maker = EtMaker()
    inputs = [gradient, tensor(2, 3, 9), weight]
    outer = maker.add("aten::convolution_backward", inputs, [weight, tensor(4)])
    maker.add("aten::sum", [gradient], [tensor(4)], parent=outer)
    names = [item.name for item in walked(maker).items]
    assert names == ["aten::convolution_backward", "aten::sum"]


def test_a_kernel_s_operator_is_of_its_pass() -> None:
    items = [item.operator for item in walked(rank()).items if item.operator is not None]
    assert [each.direction.value for each in items] == ["forward", "forward", "backward", "forward"]
