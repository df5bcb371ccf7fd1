"""Files of recorded ids: every layout, and what is none."""

import gzip
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_archives import built, torch_archive

from costmodel.base.errors import InputError, MissingDependencyError
from planner.inspection.inspect import inspect
from planner.inspection.reading import read_samples
from planner.inspection.samples import RecordedIds

IDS = [5, 6, 7, 8, 9, 9]
LENGTHS = [1, 2, 0, 3]
OFFSETS = [0, 1, 3, 3, 6]
"""One feature of four samples, or two features of two."""


def plain(samples: RecordedIds) -> dict[str, tuple[list[int], list[int]]]:
    return {f.name: (f.ids.tolist(), f.lengths.tolist()) for f in samples.features}


def npz(path: Path, **arrays: Any) -> Path:  # noqa: ANN401 - whatever numpy can save
    target = path / "ids.npz"
    np.savez(target, **{name: np.asarray(array) for name, array in arrays.items()})
    return target


@pytest.mark.parametrize(
    "arrays",
    [
        {"values": IDS, "lengths": LENGTHS},
        {"indices": IDS, "offsets": OFFSETS},
        {"ids": IDS, "offsets": OFFSETS[:-1]},
    ],
)
def test_one_table_without_a_name(tmp_path: Path, arrays: dict[str, list[int]]) -> None:
    samples = read_samples(npz(tmp_path, **arrays))
    assert plain(samples) == {"t0": (IDS, LENGTHS)}
    assert not samples.named


@pytest.mark.parametrize("separator", [".", "/", "_"])
def test_named_tables(tmp_path: Path, separator: str) -> None:
    arrays = {
        f"item{separator}values": IDS,
        f"item{separator}lengths": LENGTHS,
        f"user_id{separator}indices": [1, 2],
        f"user_id{separator}offsets": [0, 0, 0, 1, 2],
        "one_hot": [3, 3, 3, 4],
        "padded": [[1, -1], [2, 3], [-1, -1], [1, 1]],
        "label": [0.0, 1.0, 1.0, 0.0],
    }
    samples = read_samples(npz(tmp_path, **arrays))
    assert plain(samples) == {
        "item": (IDS, LENGTHS),
        "user_id": ([1, 2], [0, 0, 1, 1]),
        "one_hot": ([3, 3, 3, 4], [1, 1, 1, 1]),
        "padded": ([1, -1, 2, 3, -1, -1, 1, 1], [2, 2, 2, 2]),
    }
    assert samples.skipped == ("label",)
    assert [each.is_given for each in samples.features] == [True, True, False, False]


def test_a_keyed_jagged_tensor_taken_apart(tmp_path: Path) -> None:
    samples = read_samples(npz(tmp_path, keys=["a", "b"], values=IDS, lengths=LENGTHS))
    assert plain(samples) == {"a": ([5, 6, 7], [1, 2]), "b": ([8, 9, 9], [0, 3])}


def test_npy_holds_one_table(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2], [3, 4]]))
    assert plain(read_samples(tmp_path / "x.npy")) == {"t0": ([1, 2, 3, 4], [2, 2])}


def torch_file(path: Path, value: object, *storages: list[int]) -> Path:
    return written(path, torch_archive(value, *storages))


def test_the_open_dataset_needs_no_torch(tmp_path: Path) -> None:
    value = (built(0, (6,), (1,)), built(1, (5,), (1,)), built(2, (2, 2), (2, 1)))
    path = torch_file(tmp_path, value, IDS, OFFSETS, LENGTHS)
    samples = read_samples(path)
    assert plain(samples) == {"t0": ([5, 6, 7], [1, 2]), "t1": ([8, 9, 9], [0, 3])}
    assert not samples.named
    packed = written(tmp_path, gzip.compress(path.read_bytes()))
    assert plain(read_samples(packed)) == plain(samples)


def test_what_torch_and_torchrec_save(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    jagged = pytest.importorskip("torchrec.sparse.jagged_tensor")
    ids, lengths = torch.tensor(IDS), torch.tensor(LENGTHS)
    keyed = jagged.KeyedJaggedTensor(keys=["a", "b"], values=ids, lengths=lengths)
    both = {"a": ([5, 6, 7], [1, 2]), "b": ([8, 9, 9], [0, 3])}
    offsets = torch.tensor(OFFSETS)
    cases: list[tuple[object, object]] = [
        (keyed, both),
        (jagged.KeyedJaggedTensor(keys=["a", "b"], values=ids, offsets=offsets), both),
        ((ids, offsets, lengths.reshape(2, 2).int()), {"t0": both["a"], "t1": both["b"]}),
        ((ids, offsets), {"t0": (IDS, LENGTHS)}),
        ({"a": (ids, lengths)}, {"a": (IDS, LENGTHS)}),
        ({"a": jagged.JaggedTensor(ids, lengths=lengths)}, {"a": (IDS, LENGTHS)}),
        (torch.tensor([[1, 2], [3, 4]]), {"t0": ([1, 2, 3, 4], [2, 2])}),
        ([keyed, keyed], {"a": ([5, 6, 7] * 2, [1, 2] * 2), "b": ([8, 9, 9] * 2, [0, 3] * 2)}),
    ]
    for saved, expected in cases:
        torch.save(saved, tmp_path / "x.pt")
        samples = read_samples(tmp_path / "x.pt")
        assert plain(samples) == expected
        assert samples.batch_samples == (2 if isinstance(saved, list) else None)


def test_a_short_last_batch_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save([{"a": part} for part in torch.split(torch.arange(10), 4)], tmp_path / "x.pt")
    samples = read_samples(tmp_path / "x.pt")
    assert (samples.batch_samples, samples.features[0].num_samples) == (4, 10)


def saved_old(tmp_path: Path) -> Path:
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
    (tmp_path / "x").write_bytes(magic)
    return tmp_path / "x"


def written(tmp_path: Path, data: bytes) -> Path:
    (tmp_path / "x").write_bytes(data)
    return tmp_path / "x"


def foreign_zip(tmp_path: Path) -> Path:
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr("readme.txt", "hello")
    return tmp_path / "x"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (saved_old, "old format"),
        (foreign_zip, "neither numpy nor torch"),
        (lambda path: written(path, b""), "the file is empty"),
        (lambda path: written(path, b"a,b\n1,2\n"), "not a file of recorded ids"),
        (lambda path: written(path, b"PK\x03\x04 cut off"), "damaged"),
        (lambda path: written(path, b"\x1f\x8b cut off"), "damaged"),
        (lambda path: path / "missing.pt", "no such file"),
        (lambda path: npz(path, x=[0.5]), "nothing of whole numbers"),
        (lambda path: npz(path, values=[], lengths=[0]), "whole numbers"),
        (lambda path: npz(path, x=np.zeros((2, 0), int)), "every sample is empty"),
        (lambda path: npz(path, values=IDS, lengths=[1, 2]), "add up to 3, but there are 6"),
        (lambda path: npz(path, values=IDS, lengths=[7, -1]), "must not be negative"),
        (lambda path: npz(path, values=IDS, offsets=[1, 2]), "must go from 0"),
        (lambda path: npz(path, keys=["a", "b"], values=IDS, lengths=[3, 3, 0]), "3 lengths"),
        (lambda path: npz(path, keys=["a"], values=IDS), "without lengths or offsets"),
        (lambda path: npz(path, x=np.array([{}])), "an array of objects"),
        (lambda path: torch_file(path, "text"), "a saved `str`"),
        (lambda path: torch_file(path, {"model": {"weight": 1}}), "nothing of whole numbers"),
        (lambda path: torch_file(path, (built(0, (1,), (1,)),), [1]), "1 tensor without names"),
    ],
)
def test_what_is_no_file_of_ids(tmp_path: Path, make: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(InputError, match=message) as caught:
        read_samples(make(tmp_path))
    assert caught.value.problems


def test_offsets_that_wrap_around_are_refused(tmp_path: Path) -> None:
    offsets = np.array([0, 5, 2, 6], dtype=np.uint64)
    with pytest.raises(InputError, match="must not be negative"):
        read_samples(npz(tmp_path, values=IDS, offsets=offsets))


def test_an_array_cannot_be_longer_than_its_file(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<i8", "fortran_order": False, "shape": (2**50,)}
    )
    with pytest.raises(InputError, match="the end is missing"):
        read_samples(written(tmp_path, header.getvalue()))


def test_a_deep_pickle_neither_crashes_nor_hangs(tmp_path: Path) -> None:
    pickled = b"\x80\x02]" + b"]" * 200_000 + b"a" * 200_000 + b"."
    target = tmp_path / "ids.pt"
    with zipfile.ZipFile(target, "w") as made:
        made.writestr("ids/data.pkl", pickled)
    with pytest.raises(InputError):
        read_samples(target)


@pytest.mark.parametrize("separator", [".", "/", "_"])
def test_ids_may_have_their_lengths_beside_their_own_name(tmp_path: Path, separator: str) -> None:
    name = f"item_id{separator}lengths"
    samples = read_samples(npz(tmp_path, **{"item_id": IDS, name: LENGTHS}))
    assert plain(samples) == {"item_id": (IDS, LENGTHS)}
    assert samples.skipped == ()


def test_features_of_one_batch_have_equally_many_samples(tmp_path: Path) -> None:
    path = npz(tmp_path, a=[1, 2, 3], b=[1, 2])
    with pytest.raises(InputError, match="`a` has 3 samples and `b` 2"):
        read_samples(path)


@pytest.mark.parametrize(
    "value",
    [
        {"x": [[5], [6, 7], [], [8, 9, 9]]},
        {"x.values": IDS, "x.lengths": LENGTHS},
        {"x": (built(0, (6,), (1,)), built(1, (4,), (1,)))},  # a pair of tensors stays one
    ],
)
def test_lists_of_numbers_are_ids(tmp_path: Path, value: Any) -> None:  # noqa: ANN401
    samples = read_samples(torch_file(tmp_path, value, IDS, LENGTHS))
    assert plain(samples) == {"x": (IDS, LENGTHS)}


def test_a_list_of_samples_has_no_name(tmp_path: Path) -> None:
    samples = read_samples(torch_file(tmp_path, [[5], [6, 7], [], [8, 9, 9]]))
    assert (plain(samples), samples.named) == ({"t0": (IDS, LENGTHS)}, False)
    assert plain(read_samples(torch_file(tmp_path, [3, 1])))["t0"] == ([3, 1], [1, 1])


def test_without_scipy_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.environment.extras.find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match="needs `scipy`"):
        inspect(tmp_path / "ids.npz")


def test_without_pyarrow_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"scipy": object()}
    monkeypatch.setattr("planner.environment.extras.find_spec", there.get)
    with pytest.raises(MissingDependencyError, match="needs `pyarrow`") as caught:
        inspect(tmp_path / "ids.npz")
    assert "inspect" in str(caught.value.hint)
