"""Files of unknown origin as TorchRec plans: they are read as data, or refused, and run nothing."""

import io
import os
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torch import nn
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharding_spec import EnumerableShardingSpec
from torchrec.distributed.sharding_plan import placement
from torchrec.distributed.types import (
    BoundsCheckMode,
    CacheAlgorithm,
    CacheParams,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
)
from torchrec.distributed.types import ShardingPlan as TorchRecPlan
from torchrec.types import DataType

from costmodel.base.errors import InputError
from planner.torchrec.plan_reading import read_torchrec_file


def a_plan(**parameter: Any) -> TorchRecPlan:  # noqa: ANN401 - fields of ParameterSharding
    spec = EnumerableShardingSpec([
        ShardMetadata(shard_offsets=[0, 0], shard_sizes=[8, 4], placement=placement("cuda", 0, 1))
    ])
    given = {"ranks": [0], "sharding_spec": spec, **parameter}
    sharding = ParameterSharding(sharding_type="table_wise", compute_kernel="fused", **given)
    return TorchRecPlan(plan={"ebc": EmbeddingModuleShardingPlan({"t": sharding})})


FULL = a_plan(
    cache_params=CacheParams(
        algorithm=CacheAlgorithm.LFU, load_factor=0.1, precision=DataType.FP16
    ),
    bounds_check_mode=BoundsCheckMode.WARNING,
    output_dtype=DataType.BF16,
    stochastic_rounding=True,
)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_plan_comes_back_as_it_was(tmp_path: Path, protocol: int) -> None:
    torch.save(FULL, tmp_path / "plan.pt", pickle_protocol=protocol)
    assert read_torchrec_file(tmp_path / "plan.pt") == FULL


class Script(nn.Module):
    """Writes a file when it is loaded."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        return self.target, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        self.target = state[0]
        self.training = state[1]
        torch.save(self.target, self.target)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.filterwarnings("ignore")
def test_torchscript_is_not_run(tmp_path: Path) -> None:
    target = tmp_path / "written"
    torch.jit.script(Script(str(target))).save(str(tmp_path / "plan.pt"))
    with pytest.raises(InputError, match="TorchScript archive, which holds code"):
        read_torchrec_file(tmp_path / "plan.pt")
    assert not target.exists()


class Harmful:
    def __reduce__(self) -> object:
        return os.system, ("false",)


UNUSED = "torchrec.datasets.scripts.npy_preproc_criteo"
"""A module of an allowed package that nothing imports by itself."""


def archive(path: Path, pickled: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("archive/data.pkl", pickled)
        made.writestr("archive/version", "3")
    return path


def test_no_class_is_changed(tmp_path: Path) -> None:
    # the class itself, then BUILD with a pair, whose second part becomes attributes
    pickled = (
        b"\x80\x02ctorchrec.distributed.types\nShardingPlan\nN}X\x04\x00\x00\x00evilK\x01s\x86b."
    )
    with pytest.raises(InputError, match="a Name in the wrong place"):
        read_torchrec_file(archive(tmp_path / "plan.pt", pickled))
    assert not hasattr(TorchRecPlan, "evil")


def test_no_module_is_imported(tmp_path: Path) -> None:
    sys.modules.pop(UNUSED, None)
    pickled = b"\x80\x02c%s\nShardingPlan\n)\x81." % UNUSED.encode()
    with pytest.raises(InputError):
        read_torchrec_file(archive(tmp_path / "plan.pt", pickled))
    assert UNUSED not in sys.modules


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (Harmful(), "it names posix.system, which is no part of a plan"),
        ({"plan": 1}, "the file holds a dict"),
        (CacheParams(precision=DataType.FP16), "the file holds a CacheParams"),
        (torch.zeros(2), "it holds tensors"),
        (TorchRecPlan(plan=[1]), "it: `plan` of ShardingPlan must be a mapping, not a list"),
        (a_plan(ranks=["0"]), "table `t` of `ebc`: `ranks` of ParameterSharding must be a whole"),
        (a_plan(ranks=[-1]), "`ranks` of ParameterSharding is out of range"),
        (a_plan(sharding_spec=3), "a int in the place of a EnumerableShardingSpec"),
        (a_plan(cache_params=CacheParams(stats=[1])), "asks for cache statistics"),
        (a_plan(output_dtype=7), "must be a DataType, not a int"),
    ],
)
def test_what_is_no_plan_is_not_read(tmp_path: Path, content: object, reason: str) -> None:
    torch.save(content, tmp_path / "plan.pt")
    with pytest.raises(InputError, match=reason):
        read_torchrec_file(tmp_path / "plan.pt")


def test_a_field_of_a_later_torchrec_is_named(tmp_path: Path) -> None:
    plan = a_plan()
    plan.plan["ebc"]["t"].fancy_rows = 3
    torch.save(plan, tmp_path / "plan.pt")
    with pytest.raises(InputError, match="`fancy_rows`, which ParameterSharding has not here"):
        read_torchrec_file(tmp_path / "plan.pt")


def test_an_earlier_torchrec_lacked_some_fields(tmp_path: Path) -> None:
    plan = a_plan()
    del plan.plan["ebc"]["t"].key_value_params
    torch.save(plan, tmp_path / "plan.pt")
    assert read_torchrec_file(tmp_path / "plan.pt") == a_plan()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", pickle.dumps(3)])
def test_what_torch_did_not_write_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.pt").write_bytes(content)
    with pytest.raises(InputError, match="no TorchRec plan can be read"):
        read_torchrec_file(tmp_path / "plan.pt")


@pytest.mark.slow
def test_an_archive_that_expands_without_end_is_refused(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("archive/data.pkl", bytes(400 * 2**20))
    (tmp_path / "plan.pt").write_bytes(content.getvalue())
    with pytest.raises(InputError, match="it would expand to more than"):
        read_torchrec_file(tmp_path / "plan.pt")
