"""The arguments of ``IterationTimePlanner``: what each has to be, and names as scripts spell them.

One table says it of arguments, another of a constraint's fields. Ranges of numbers are the cost
model's to check.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, TypeAlias, TypeVar

from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, Topology
from torchrec.distributed.types import ShardingPlan

from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import DenseModel, Pipeline
from planner.torchrec.error_types import INPUT_VALIDATION

Value = TypeVar("Value")
_Test: TypeAlias = Callable[[Any], bool]
_Wanted: TypeAlias = Mapping[str, tuple[_Test, str]]
"""By name, what a value has to pass unless it is None, and what that is called."""


def _is(*kinds: type) -> _Test:
    """Return a test for values of some types; a bool is no number."""
    return lambda given: isinstance(given, kinds) and isinstance(given, bool) == (bool in kinds)


def _has(*methods: str) -> _Test:
    """Return a test for objects, and no classes, that have some methods."""
    return lambda given: (
        not isinstance(given, type)
        and all(callable(getattr(given, each, None)) for each in methods)
    )


def _each(test: _Test) -> _Test:
    """Return a test for lists of what another test takes."""
    return lambda given: isinstance(given, list | tuple) and all(map(test, given))


def _either(*tests: _Test) -> _Test:
    return lambda given: any(test(given) for test in tests)


_WHOLE = _is(Integral), "a whole number"
_TELLS = _has("log")
_ARGUMENTS: _Wanted = {
    "topology": (_is(Topology), "a Topology of TorchRec's"),
    "batch_size": _WHOLE,
    "enumerator": (_has("enumerate", "populate_estimates"), "an Enumerator that was made"),
    "storage_reservation": (_has("reserve"), "a StorageReservation that was made"),
    "stats": (_either(_TELLS, _each(_TELLS)), "Stats that were made, or a list of them"),
    "constraints": (_is(Mapping), "a dict of ParameterConstraints by table"),
    "callbacks": (_each(callable), "a list of functions"),
    "timeout_seconds": (
        lambda given: _is(Real)(given) and given >= 0,
        "a number of seconds, 0 or more",
    ),
    "plan_loader": (_has("load", "plan_context_hash"), "a PlanLoader that was made"),
    "fixed_plan": (_is(ShardingPlan), "a ShardingPlan of TorchRec's"),
    "hardware": (_is(HardwareProfile, str, Path), "a HardwareProfile, its name or its path"),
    "sharder": (_is(str), "the name of a sharder"),
    "seed": _WHOLE,
    "dense": (_is(DenseModel), "a planner.DenseModel"),
    "gradient_accumulation_steps": _WHOLE,
    "restore_site": _WHOLE,
    "replicate": (_is(bool), "True, False or None"),
}
_NUMBERS = _each(_is(Real)), "a list of numbers"
_LIST = _is(list, tuple), "a list"
_CONSTRAINT: _Wanted = {
    "sharding_types": _LIST,
    "compute_kernels": _LIST,
    "min_partition": _WHOLE,
    "pooling_factors": _NUMBERS,
    "num_poolings": _NUMBERS,
    "batch_sizes": _NUMBERS,
}
_PIPELINES: Mapping[str, Pipeline] = {each.value: each for each in Pipeline} | {
    "TrainPipelineBase": Pipeline.NONE,
    "TrainPipelineSparseDist": Pipeline.SPARSE_DIST,
    "TrainPipelineSparseDistEmbStash": Pipeline.SPARSE_DIST,
    "PrefetchTrainPipelineSparseDist": Pipeline.PREFETCH,
    "TrainPipelineFusedSparseDist": Pipeline.FUSED_SPARSE_DIST,
    "TrainPipelineSemiSync": Pipeline.SEMI_SYNC,
}
"""By our names, and by those of TorchRec's classes."""


def check_arguments(given: Mapping[str, Any]) -> None:
    """Check the types of the planner's arguments, by name; of others nothing is said.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        Some are of other types; it names all of these.

    """
    wrong = list(_wrong(given, _ARGUMENTS, "{}"))
    constraints = given.get("constraints")
    for table, each in constraints.items() if isinstance(constraints, Mapping) else ():
        if each is None:
            continue
        if isinstance(each, ParameterConstraints):
            wrong += _wrong(vars(each), _CONSTRAINT, f"{{}} of the constraints of `{table}`")
        else:
            wrong.append(
                f"constraints of `{table}` must be ParameterConstraints, got "
                f"{type(each).__name__}: ParameterConstraints(sharding_types=[...])"
            )
    if wrong:
        raise PlannerError("\n".join(wrong), INPUT_VALIDATION)


def _wrong(given: Mapping[str, Any], wanted: _Wanted, called: str) -> Iterator[str]:
    """Yield what is wrong; ``called`` makes what a message calls a value of its name."""
    for name, (test, text) in wanted.items():
        value = given.get(name)
        if value is not None and not test(value):
            got = f"the class {value.__name__}" if isinstance(value, type) else short_repr(value)
            yield f"{called.format(name)} must be {text}, got {got}"


def named(argument: str, given: object, names: Mapping[str, Value]) -> Value:
    """Return what a name stands for, in whatever case, with ``torch.`` before it or without.

    A class goes by its own name, and so do members of an enumeration and torch's types.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        There is none of this name; it lists all there are.

    """
    told = given.__name__ if isinstance(given, type) else str(given)
    found = {_plain(name): value for name, value in names.items()}.get(_plain(told))
    if found is None:
        raise unknown(argument, told, names)
    return found


def _plain(name: str) -> str:
    return name.rpartition(".")[2].replace("_", "").casefold()


def unknown(argument: str, told: str, names: Iterable[str]) -> PlannerError:
    """Return the error of a name that stands for nothing."""
    return PlannerError(
        f"unknown {argument} `{told}`; accepted are {', '.join(names)}", INPUT_VALIDATION
    )


def to_pipeline(pipeline: Pipeline | str | type) -> Pipeline:
    """Return a pipeline, which may be given by its name, or as TorchRec's class or its name."""
    return named("pipeline", pipeline, _PIPELINES)
