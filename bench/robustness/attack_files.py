"""Hostile files of an attacker who knows what reads them: what each would do, and how it is made.

They run code, read out of bounds, grow or keep busy whoever takes them at their word. ``RAN`` is a
file that code from an input would leave behind. Made by the standard library (and numpy, torch and
pyarrow where a format is theirs), so that they can be tried on any version of the planner.
"""

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[2] / "tests" / "fuzz" / "corpus"
RAN = "RAN"
Words = Sequence[str]
PLAN = ("plan", "w.yaml", "--gpus", "2", "--time-limit", "0.5", "--baseline", "none")
IMPORT = ("torchrec", "import", "p.pt", "--workload", "w.yaml", "--gpus", "2", "-o", "out.json")
TABLE = "{name: t, num_embeddings: 1000, embedding_dim: 16}"
WORKLOAD = f"local_batch_size: 64\ntables:\n  - {TABLE}\n"


def workload(text: str, *words: str) -> Callable[[Path], Words]:
    """Return an attack by a workload."""

    def make(folder: Path) -> Words:
        (folder / "w.yaml").write_text(text)
        return words or PLAN

    return make


def tables(count: int, fields: str = "num_embeddings: 1000, embedding_dim: 16") -> str:
    """Return a workload of some like tables."""
    return "local_batch_size: 64\ntables:\n" + "".join(
        f"  - {{name: t{i}, {fields}}}\n" for i in range(count)
    )


def with_table(fields: str) -> str:
    """Return a workload whose one table has some fields more."""
    return f"local_batch_size: 64\ntables:\n  - {{name: t, num_embeddings: 1000, {fields}}}\n"


def saved(name: str, data: bytes | Callable[[], bytes], *words: str) -> Callable[[Path], Words]:
    """Return an attack by any file."""

    def make(folder: Path) -> Words:
        (folder / "w.yaml").write_text(WORKLOAD)
        (folder / name).write_bytes(data if isinstance(data, bytes) else data())
        return words

    return make


def plan_file(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], Words]:
    """Return an attack by a plan file."""

    def make(folder: Path) -> Words:
        document = json.loads((CORPUS / "plan.json").read_text())
        change(document)
        (folder / "plan.json").write_text(json.dumps(document))
        return "explain", "plan.json"

    return make


class Runs:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self) -> Any:  # noqa: ANN401 - pickle's protocol
        return eval, (f"open({RAN!r}, 'w').close()",)


def torch_archive(pickled: bytes, *storages: bytes) -> bytes:
    """Return what torch.load takes for a file of torch.save."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("x/data.pkl", pickled)
        archive.writestr("x/version", "3")
        for number, data in enumerate(storages):
            archive.writestr(f"x/data/{number}", data)
    return made.getvalue()


def strided(size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> bytes:
    """Return a file of torch.save whose tensor reaches where it should not."""
    out = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(("
    out += _unicode("storage") + b"ctorch\nLongStorage\n" + _unicode("0") + _unicode("cpu")
    out += b"K\x03tQ" + _number(offset) + _numbers(size) + _numbers(stride)
    out += b"\x89ccollections\nOrderedDict\n)RtR."
    return torch_archive(out, struct.pack("<3q", 1, 2, 3))


def _unicode(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _number(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def _numbers(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(_number, values)) + b"t"


def shared_lists() -> bytes:
    """Return a pickle of lists, each holding the one before twice: 2^200 when they are walked."""
    steps = b"".join(b"q%c](h%ch%ce" % (n, n, n) for n in range(200))
    return b"\x80\x02]" + steps + b"."


def npy(header: str, data: bytes = b"") -> bytes:
    """Return an array file with a header of our own."""
    text = header.encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text + data


def deep(opening: str, closing: str, depth: int = 100_000) -> str:
    """Return brackets in brackets."""
    return opening * depth + closing * depth


def bomb(size: int) -> bytes:
    """Return a gzip stream that expands to so many zeros, a thousand times its size."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9) as stream:
        for _ in range(size // 2**20):
            stream.write(bytes(2**20))
    return out.getvalue()


def zip_bomb(name: str, size: int) -> bytes:
    """Return an archive whose only entry expands to so many zeros."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(size))
    return out.getvalue()


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return a tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def many_members(count: int) -> bytes:
    """Return a tar archive of empty files: half a kilobyte each, unpacked."""
    header = tarfile.TarInfo("x.txt").tobuf()
    return gzip.compress(header * count + bytes(1024), 9)


def long_name(size: int) -> bytes:
    """Return a tar archive with a file whose name takes so many bytes."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, size
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb") as stream:
        stream.write(member.tobuf(tarfile.GNU_FORMAT))
        for _ in range(size // 2**20):
            stream.write(b"x" * 2**20)
    return out.getvalue()


def link(target: str) -> tarfile.TarInfo:
    """Return a symbolic link in an archive."""
    member = tarfile.TarInfo("rank0.json")
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def trace(events: Sequence[Mapping[str, object]], **head: object) -> bytes:
    """Return a profiler trace: that of the corpus, and some events more."""
    document = json.loads((CORPUS / "kineto.json").read_text())
    return json.dumps({
        **document, **head, "traceEvents": [*document["traceEvents"], *events],
    }).encode()  # fmt: skip


def execution_trace(nodes: Sequence[Mapping[str, object]]) -> bytes:
    """Return an execution trace: that of the corpus, and some operators more."""
    document = json.loads((CORPUS / "execution.json").read_text())
    return json.dumps({**document, "nodes": [*document["nodes"], *nodes]}).encode()


def operator(number: int, parent: int, **fields: object) -> dict[str, object]:
    """Return an operator of an execution trace."""
    nothing: dict[str, list[object]] = {"values": [], "shapes": [], "types": [], "strides": []}
    return {
        "id": number, "name": "aten::mm", "ctrl_deps": parent, "inputs": nothing,
        "outputs": nothing, "attrs": [{"name": "tid", "value": 1}], **fields,
    }  # fmt: skip


def product(*shape: object) -> dict[str, object]:
    """Return the inputs of a product of matrices of some shape."""
    value = [1, 1, 0, 100, 4, "cpu"]
    return {
        "values": [value, value], "shapes": [list(shape), list(shape)],
        "types": ["Tensor(float)", "Tensor(float)"], "strides": [[1, 1], [1, 1]],
    }  # fmt: skip


def profile(old: str, new: str) -> Callable[[Path], Words]:
    """Return an attack by a hardware profile."""

    def make(folder: Path) -> Words:
        text = (CORPUS / "profile.yaml").read_text()
        if old not in text:
            raise ValueError(f"the profile has no {old!r}")
        (folder / "mine.yaml").write_text(text.replace(old, new, 1))
        (folder / "w.yaml").write_text(WORKLOAD)
        return *PLAN, "--hardware", "mine.yaml"

    return make


def modules(*words: str) -> Callable[[Path], Words]:
    """Return an attack by modules in the working directory, which children may import."""

    def make(folder: Path) -> Words:
        (folder / "w.yaml").write_text(WORKLOAD)
        for name in ("hashlib", "pickle", "planner", "numpy", "multiprocessing", "runpy", "json"):
            (folder / f"{name}.py").write_text(f"open({RAN!r}, 'w').close()")
        return words

    return make


def torchscript(folder: Path) -> Words:
    """Write an archive of code that writes a file when it is loaded."""
    import torch

    source = f"""
class Script(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.target = {str(folder / RAN)!r}

    @torch.jit.export
    def __getstate__(self) -> Tuple[str, bool]:
        return self.target, self.training

    @torch.jit.export
    def __setstate__(self, state: Tuple[str, bool]) -> None:
        self.target = state[0]
        self.training = state[1]
        torch.save(self.target, self.target)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x
"""
    script = folder / "script.py"
    script.write_text(f"import torch\nfrom typing import Tuple\n{source}")
    names: dict[str, Any] = {"__name__": "script"}
    import linecache

    linecache.getlines(str(script))
    exec(compile(script.read_text(), str(script), "exec"), names)  # noqa: S102 - ours
    torch.jit.script(names["Script"]()).save(str(folder / "p.pt"))
    (folder / RAN).unlink(missing_ok=True)
    (folder / "w.yaml").write_text(WORKLOAD)
    return IMPORT


def parquet(folder: Path) -> Words:
    """Write a column of a hundred million equal ids, which takes some kilobytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    piece = pa.table({"ids": pa.array([[7] * 2**20], pa.list_(pa.int64()))})
    with pq.ParquetWriter(folder / "ids.parquet", piece.schema, compression="zstd") as writer:
        for _ in range(100):
            writer.write_table(piece)
    return "inspect", "ids.parquet"


def fifo(folder: Path) -> Words:
    """Make a pipe that nobody writes to among the traces."""
    import os

    (folder / "traces").mkdir()
    os.mkfifo(folder / "traces" / "rank0.json")
    return "replay", "traces"


def pickled(value: object) -> bytes:
    """Return a pickle."""
    return pickle.dumps(value, 2)
