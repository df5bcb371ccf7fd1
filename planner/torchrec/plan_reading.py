"""Reading files of ``torch.save(plan, path)`` without running or changing anything.

torch is not used: ``torch.load`` passes what looks like TorchScript to a loader that runs it, even
where pickles are guarded. The pickle is read as plain data (``files.pickles``), every field is
checked, and TorchRec's objects are made here, by their constructors.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from torch.distributed.remote_device import _remote_device
from torchrec.distributed.types import (
    BoundsCheckMode,
    CacheAlgorithm,
    CacheParams,
    EmbeddingModuleShardingPlan,
    EnumerableShardingSpec,
    ParameterSharding,
    ShardMetadata,
)
from torchrec.distributed.types import ShardingPlan as TorchRecPlan
from torchrec.types import DataType

from costmodel.base.errors import InputError, Problem
from planner.files.archives import open_archive
from planner.files.disk import read_bytes, source_name
from planner.files.pickles import Name, PickledObject, load_pickle
from planner.files.torch_files import read_pickle

_PACKAGES = {"fbgemm_gpu", "torch", "torchrec"}
_CLASSES = {
    "BoundsCheckMode",
    "CacheAlgorithm",
    "CacheParams",
    "DataType",
    "EmbeddingModuleShardingPlan",
    "EnumerableShardingSpec",
    "KeyValueParams",
    "MultiPassPrefetchConfig",
    "ParameterSharding",
    "ShardMetadata",
    "ShardingPlan",
    "_remote_device",
    "device",
}
"""Classes that a plan file may name, all of torchrec or fbgemm."""
_DEVICES = ("cuda", "cpu", "mtia", "meta", "hpu", "xpu")
_MOST = 2**62
Check = Callable[[Any], Any]


def read_torchrec_file(path: str | Path) -> TorchRecPlan:
    """Return the plan that ``torch.save(plan, path)`` wrote.

    Raises
    ------
    InputError
        The file holds something else, or a plan of a TorchRec whose plans are other than ours.

    """
    data = read_bytes(path)
    try:
        return _plan(_content(data))
    except (ValueError, RecursionError, MemoryError) as error:
        raise _no_plan(path, str(error) or "it does not fit in memory") from None


def _content(data: bytes) -> object:
    """Return what `torch.save` wrote into a file, classes left as they are named."""
    if not data.startswith(b"PK"):
        raise ValueError("it is not in torch.save's format")
    with open_archive(data) as archive:
        _, pickled = read_pickle(archive)
    return load_pickle(pickled)


def _no_plan(path: str | Path, reason: str) -> InputError:
    message = f"no TorchRec plan can be read: {reason}"
    hint = "write it with torch.save(plan, path), plan being what `collective_plan` returned"
    return InputError(source_name(path), (Problem(message=message, hint=hint),))


def _plan(loaded: object) -> TorchRecPlan:
    if not isinstance(loaded, PickledObject):
        raise ValueError(f"the file holds a {type(loaded).__name__}")  # noqa: TRY004 - the file's
    _check_class(loaded.of)
    if loaded.of.name != "ShardingPlan":
        raise ValueError(f"the file holds a {loaded.of.name}")
    (modules,) = _fields(loaded, "ShardingPlan", {"plan": _mapping}, "it").values()
    return TorchRecPlan(
        plan={_text(path): _module(path, tables) for path, tables in modules.items()}
    )


def _module(path: str, tables: object) -> EmbeddingModuleShardingPlan:
    if isinstance(tables, PickledObject):
        _check_class(tables.of)
    return EmbeddingModuleShardingPlan({
        _text(name): ParameterSharding(**_parameter(f"table `{name}` of `{path}`", sharding))
        for name, sharding in _mapping(tables).items()
    })


def _parameter(where: str, sharding: object) -> dict[str, Any]:
    """Return the fields of a table's ``ParameterSharding`` in a pickle, checked."""
    checks: dict[str, Check] = {
        "sharding_type": _text,
        "compute_kernel": _text,
        "ranks": _optional(_numbers),
        "sharding_spec": _optional(lambda spec: _spec(where, spec)),
        "cache_params": _optional(lambda params: _cache(where, params)),
        "enforce_hbm": _optional(_flag),
        "stochastic_rounding": _optional(_flag),
        "bounds_check_mode": _optional(_member(BoundsCheckMode)),
        "output_dtype": _optional(_member(DataType)),
        "key_value_params": _nothing("SSD and parameter servers, which no plan file can keep"),
    }
    return _fields(sharding, "ParameterSharding", checks, where)


def _spec(where: str, spec: object) -> EnumerableShardingSpec:
    """Return the sharding spec in a pickle, checked."""
    given = _fields(spec, "EnumerableShardingSpec", {"shards": _list}, where)
    checks: dict[str, Check] = {
        "shard_offsets": _pair,
        "shard_sizes": _pair,
        "placement": lambda placement: _placement(where, placement),
    }
    shards = given["shards"]
    return EnumerableShardingSpec([
        ShardMetadata(**_fields(shard, "ShardMetadata", checks, where)) for shard in shards
    ])


def _placement(where: str, placement: object) -> _remote_device:
    """Return where a saved plan puts a shard."""
    checks: dict[str, Check] = {
        "_worker_name": _nothing("workers"),
        "_rank": _number,
        "_device": _device,
    }
    given = _fields(placement, "_remote_device", checks, where)
    return _remote_device(f"rank:{given['_rank']}/{given['_device']}")


def _cache(where: str, params: object) -> CacheParams:
    """Return the cache parameters in a pickle, checked."""
    checks: dict[str, Check] = {
        "algorithm": _optional(_member(CacheAlgorithm)),
        "load_factor": _optional(_real),
        "reserved_memory": _optional(_real),
        "precision": _optional(_member(DataType)),
        "prefetch_pipeline": _optional(_flag),
        "stats": _nothing("cache statistics, which no plan file can keep"),
        "multipass_prefetch_config": _nothing("a multi-pass prefetch, which no plan file can keep"),
    }
    return CacheParams(**_fields(params, "CacheParams", checks, where))


def _fields(record: object, kind: str, checks: Mapping[str, Check], where: str) -> dict[str, Any]:
    """Return the checked fields of an object; fields unknown to this TorchRec must be unset."""
    if not isinstance(record, PickledObject):
        raise ValueError(  # noqa: TRY004 - the file's
            f"{where} has a {type(record).__name__} in the place of a {kind}: {_OTHER_VERSION}"
        )
    _check_class(record.of)
    if record.of.name != kind:
        raise ValueError(f"{where} has a {record.of.name} in the place of a {kind}")
    unknown = [
        name for name, value in record.state.items() if name not in checks and value is not None
    ]
    if unknown:
        raise ValueError(f"{where} has `{unknown[0]}`, which {kind} has not here: {_OTHER_VERSION}")
    given = {}
    for name, check in checks.items():
        try:
            given[name] = check(record.state.get(name))
        except ValueError as error:
            raise ValueError(f"{where}: `{name}` of {kind} {error}") from None
    return given


_OTHER_VERSION = "another version of TorchRec wrote it"


def _check_class(of: Name) -> None:
    if of.module.partition(".")[0] not in _PACKAGES or of.name not in _CLASSES:
        raise ValueError(f"it names {of.path}, which is no part of a plan")


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _nothing(what: str) -> Check:
    """Return a check that a value is unset."""

    def check(value: object) -> None:
        if value is not None:
            raise ValueError(f"asks for {what}")

    return check


def _is(kind: type | tuple[type, ...], what: str) -> Check:
    def check(value: object) -> object:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"must be {what}, not a {_kind(value)}")
        return value

    return check


def _kind(value: object) -> str:
    return value.of.name if isinstance(value, PickledObject) else type(value).__name__


_text = _is(str, "text")
_flag = _is(bool, "true or false")
_real = _is((int, float), "a number")
_list = _is(list, "a list")


def _mapping(value: object) -> dict[Any, Any]:
    """Return a mapping, also one of a class of its own."""
    if isinstance(value, PickledObject):
        return value.entries
    given: dict[Any, Any] = _is(dict, "a mapping")(value)
    return given


def _number(value: object) -> int:
    """Return a whole number that is neither negative nor too large."""
    number: int = _is(int, "a whole number")(value)
    if not 0 <= number < _MOST:
        raise ValueError("is out of range")
    return number


def _numbers(value: object) -> list[int]:
    return [_number(item) for item in _list(value)]


def _pair(value: object) -> list[int]:
    """Return numbers of rows and columns."""
    pair = _numbers(value)
    if len(pair) != 2:
        raise ValueError(f"must be rows and columns, not {len(pair)} numbers")
    return pair


def _member(kind: type[Enum]) -> Check:
    """Return a check for a member of an enum, which is pickled as its class and value."""

    def check(value: object) -> Enum:
        if not isinstance(value, PickledObject) or value.of.name != kind.__name__:
            raise ValueError(f"must be a {kind.__name__}, not a {_kind(value)}")
        _check_class(value.of)
        if len(value.arguments) != 1 or not isinstance(value.arguments[0], int | str):
            raise ValueError(f"must be a {kind.__name__}: {_OTHER_VERSION}")
        return kind(value.arguments[0])

    return check


def _device(value: object) -> str:
    """Return a device as text, such as ``cuda:0``."""
    if not isinstance(value, PickledObject) or value.of != Name("torch", "device"):
        raise ValueError(f"must be a device, not a {_kind(value)}")
    kind, *index = value.arguments or ("",)
    if kind not in _DEVICES or len(index) > 1:
        raise ValueError("must be a device of torch")
    return ":".join([kind, *(str(_number(number)) for number in index)])
