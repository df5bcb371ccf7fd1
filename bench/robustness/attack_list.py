"""The attacks that are tried, by what they are after (`SECURITY.md`)."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from bench.robustness import attack_files as files
from bench.robustness.attack_files import IMPORT, PLAN, RAN, Words
from bench.robustness.attacks import Attack

Fields = dict[str, object]


def _set(key: str, value: object) -> Callable[[Path], Words]:
    return files.plan_file(lambda document: document.__setitem__(key, value))


def _shards(count: int) -> Callable[[Path], Words]:
    def change(document: dict[str, object]) -> None:
        text = json.loads(json.dumps(document))
        name, table = (
            next(iter(text["tables"].items()))
            if isinstance(text["tables"], dict)
            else (0, text["tables"][0])
        )
        table["shards"] = [table["shards"][0]] * count
        text["tables"][name] = table
        document.update(text)

    return files.plan_file(change)


_MISTAKES = "local_batch_size: 64\ntables:\n" + "".join(
    f"  - {{name: t{i}, num_embeddings: no, embedding_dim: no}}\n" for i in range(10_000)
)
_LAUGHS = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30)
)
_TRACE = ("replay", "rank0.json")
_EXECUTION = ("predict", "rank0.json", "--hardware", "h100-sxm")
_HISTORY = ", ".join(["1e-3"] * 100_000)


def _named(*names: str) -> str:
    tables = ", ".join(f'{{"name": {n}, "num_embeddings": 8, "embedding_dim": 4}}' for n in names)
    return f'{{"local_batch_size": 64, "tables": [{tables}]}}'


def _event(**fields: object) -> Fields:
    return {
        "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1,
        "args": {"stream": 7, "correlation": 9}, **fields,
    }  # fmt: skip


def _save(name: str, data: bytes | Callable[[], bytes], *words: str) -> Callable[[Path], Words]:
    return files.saved(name, data, *(words or ("inspect", name)))


def _ids(data: bytes) -> Callable[[Path], Words]:
    return _save("ids.pt", data)


def _planned(text: str, gpus: str) -> Callable[[Path], Words]:
    return files.workload(text, *PLAN[:3], gpus, *PLAN[4:])


def _traced(
    events: list[Fields] | Callable[[], list[Fields]], **head: object
) -> Callable[[Path], Words]:
    made = events if callable(events) else lambda: events
    return _save("rank0.json", lambda: files.trace(made(), **head), *_TRACE)


def _operators(nodes: list[Fields] | Callable[[], list[Fields]]) -> Callable[[Path], Words]:
    made = nodes if callable(nodes) else lambda: nodes
    return _save("rank0.json", lambda: files.execution_trace(made()), *_EXECUTION)


_code, _limits, _parsers = (partial(Attack, of) for of in ("code", "limits", "parsers"))


ATTACKS: Mapping[str, Attack] = {
    # code from a file
    "TorchScript in a TorchRec plan": _code(files.torchscript),
    "a pickle that calls eval, as a TorchRec plan": _code(
        _save("p.pt", files.torch_archive(files.pickled(files.Runs())), *IMPORT)
    ),
    "the same, without an archive": _code(_save("p.pt", files.pickled(files.Runs()), *IMPORT)),
    "a pickle that calls eval, as recorded ids": _code(
        _ids(files.torch_archive(files.pickled(files.Runs())))
    ),
    "an array of objects": _code(
        _save(
            "ids.npy",
            files.npy(
                "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
                files.pickled(files.Runs()),
            ),
        )
    ),
    "modules in the working directory, --jobs": _code(files.modules(*PLAN, "--jobs", "2")),
    "modules in the working directory, TorchRec's planner": _code(
        files.modules(*PLAN[:-2], "--time-limit", "8", "--baseline", "torchrec"), most_time=40
    ),
    "a YAML tag that calls a function": _code(
        files.workload(f"!!python/object/apply:eval [\"open('{RAN}', 'w')\"]")
    ),
    "a sharder of the settings file that is a module": _code(
        _save("planner.toml", b'sharder = "hashlib:md5"\nhardware = "../../etc/passwd"', *PLAN)
    ),
    "a plan whose model is a function to import": _code(
        _set("torchrec", {"factory": "hashlib:md5", "module": "os:system"})
    ),
    "a plan of hardware that is another file": _code(
        _set("hardware", "/etc/passwd"), hidden="root:"
    ),
    "a plan of hardware that never ends": _limits(_set("hardware", "/dev/zero")),
    "a trace that links to another file": _code(
        _save("t.tar.gz", files.tar((files.link("/etc/passwd"), b"")), "replay", "t.tar.gz"),
        hidden="root:",
    ),
    # reading out of bounds
    **{
        name: Attack("bounds", _save("ids.pt", files.strided(*strides)), refused=True)
        for name, strides in (
            ("strides beyond the numbers", ((2,), (2**40,))),
            ("strides before the numbers", ((3, 3), (-1, 1))),
            ("strides far before the numbers", ((4,), (-(2**20),))),
            ("strides that wrap around", ((2**62, 2), (-1, 1))),
            ("an offset beyond the numbers", ((2,), (1,), 2**40)),
            ("a shape whose product wraps around", ((2**32, 2**32), (0, 0))),
        )
    },
    # limits
    "a zip that expands to 2 GB": _limits(
        _save("ids.npz", partial(files.zip_bomb, "a.npy", 2**31))
    ),
    "a gzip that expands to 4 GB": _limits(_save("ids.npy.gz", partial(files.bomb, 2**32))),
    "a trace that expands to 4 GB": _limits(
        _save("rank0.json.gz", partial(files.bomb, 2**32), "replay", "rank0.json.gz")
    ),
    "a plan that expands to 2 GB": _limits(
        _save("p.pt", partial(files.zip_bomb, "x/data.pkl", 2**31), *IMPORT)
    ),
    "parquet of 100 million equal ids": _limits(files.parquet),
    "an array header of 2^60 numbers": _limits(
        _save(
            "ids.npy", files.npy(f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({2**60},)}}")
        )
    ),
    "an array header of brackets": _limits(
        _save("ids.npy", files.npy(files.deep("(", ")", 50_000)))
    ),
    "an array of 1 GB items": _limits(
        _save(
            "ids.npy", files.npy("{'descr': '|V1000000000', 'fortran_order': False, 'shape': (9,)}")
        )
    ),
    "a tensor that repeats a number 2^40 times": _limits(_ids(files.strided((2**40,), (0,)))),
    "lists that hold each other, 2^200 in all": _limits(
        _ids(files.torch_archive(files.shared_lists()))
    ),
    "the same, as a TorchRec plan": _limits(
        _save("p.pt", files.torch_archive(files.shared_lists()), *IMPORT)
    ),
    "a list that holds itself": _limits(_ids(files.torch_archive(b"\x80\x02]q\x00h\x00a."))),
    "a number of a million bytes in a pickle": _limits(
        _ids(
            files.torch_archive(
                b"\x80\x02\x8b" + (10**6).to_bytes(4, "little") + b"\x7f" * 10**6 + b"."
            )
        )
    ),
    "swapped width and rows": _limits(
        files.workload(files.tables(1, "num_embeddings: 128, embedding_dim: 40000000"))
    ),
    "2^31 columns": _limits(
        files.workload(files.tables(1, f"num_embeddings: 128, embedding_dim: {2**31}"))
    ),
    "100,000 GPUs": _limits(_planned(files.WORKLOAD, "100000")),
    "4,096 GPUs": _limits(_planned(files.WORKLOAD, "4096")),
    "a limit of 0.5 s for the bound of three tables": _limits(
        _planned(
            files.tables(3, "num_embeddings: 9000000, embedding_dim: 128, pooling_factor: 40"), "64"
        ),
        most_time=6,
    ),
    "tables that cannot fit": _limits(
        _planned(files.tables(800, "num_embeddings: 10000000, embedding_dim: 128"), "8"),
        most_time=10,
    ),
    "20,000 mistakes": _limits(files.workload(_MISTAKES)),
    "aliases of aliases, 10^29 in all": _limits(files.workload(_LAUGHS)),
    "YAML of 100,000 brackets": _limits(files.workload("x: " + files.deep("[", "]"))),
    "YAML of 100,000 question marks": _limits(files.workload("? " * 100_000)),
    "JSON of 100,000 brackets as a plan": _limits(
        _save("plan.json", files.deep("[", "]").encode(), "explain", "plan.json")
    ),
    "a plan for 10^12 ranks": _limits(_set("world_size", 10**12)),
    "a plan of 300,000 equal shards": _limits(_shards(300_000)),
    "100,000 bins": _limits(
        files.workload(
            files.with_table(
                f"embedding_dim: 16, inputs: {{reuse_histogram: [{_HISTORY}], num_lookups: 10}}"
            )
        )
    ),
    "an exponent of 10^9": _limits(
        files.workload(files.with_table("embedding_dim: 16, pooling_factor: 1e999999999"))
    ),
    "a mebibyte of digits": _limits(
        files.workload(files.with_table(f"embedding_dim: {'9' * 2**20}"))
    ),
    "a table's name of 10 MB": _limits(files.workload(_named("x" * 10**7))),
    "a pipe among the traces": _limits(files.fifo),
    "a time limit of 10^308 s": _limits(
        files.workload(
            files.WORKLOAD,
            *PLAN[:4],
            "--sharder",
            "naive",
            "--time-limit",
            "1e308",
            "--baseline",
            "none",
        )
    ),
    "a time limit that is no number": _limits(
        files.workload(files.WORKLOAD, *PLAN[:4], "--time-limit", "nan")
    ),
    "an archive of a million files": _limits(
        _save("t.tar.gz", partial(files.many_members, 1_000_000), "replay", "t.tar.gz")
    ),
    "an archive with a name of 3 GB": _limits(
        _save("t.tar.gz", partial(files.long_name, 3 * 2**30), "replay", "t.tar.gz")
    ),
    # parsers
    "half a surrogate pair as a name": _parsers(files.workload(_named('"\\ud800"'))),
    "names that differ by spaces": _parsers(files.workload(_named('"t"', '"t "'))),
    "a name of line breaks and escapes": _parsers(files.workload(_named('"a\\n\\e[2J\\u202e`"'))),
    "UTF-16": _parsers(_save("w.yaml", files.WORKLOAD.encode("utf-16"), *PLAN)),
    "a pooling factor that overflows later": _parsers(
        files.workload(files.with_table("embedding_dim: 16, pooling_factor: 1.7e308"))
    ),
    "a bandwidth of nothing": _parsers(
        files.profile("memory_bandwidth: {value: 734 GB/s", "memory_bandwidth: {value: 0 GB/s")
    ),
    "a bandwidth of 1e-308": _parsers(
        files.profile("memory_bandwidth: {value: 734 GB/s", "memory_bandwidth: {value: 1e-308 GB/s")
    ),
    "10^12 GPUs in a node": _parsers(
        files.profile("gpus_per_node: {value: 8", f"gpus_per_node: {{value: {10**12}")
    ),
    "times that are no numbers in a trace": _parsers(
        _traced([_event(ts=float("nan"), dur=float("inf"))])
    ),
    "times of 1e308 in a trace": _parsers(_traced([_event(ts=1e308, dur=1e308)])),
    "times of 4,000 digits in a trace": _parsers(_traced([_event(ts=10**4000)])),
    "10^12 ranks in a trace": _parsers(
        _traced([], distributedInfo={"backend": "nccl", "rank": 0, "world_size": 10**12})
    ),
    "step 10^30 of a trace": _parsers(
        _traced([_event(cat="user_annotation", name=f"ProfilerStep#{10**30}")])
    ),
    "200,000 kernels of one moment": _limits(_traced(lambda: [_event(ts=50, dur=0)] * 200_000)),
    "slices in slices, 50,000 deep": _limits(
        _traced(
            lambda: [
                _event(cat="cpu_op", tid=1, ts=i / 1000, dur=300 - i / 500, args={})
                for i in range(50_000)
            ]
        )
    ),
    "an operator that is its own parent": _parsers(_operators([files.operator(99, 99)])),
    "operators that are each other's parents": _parsers(
        _operators([files.operator(98, 99), files.operator(99, 98)])
    ),
    "operators in operators, 50,000 deep": _limits(
        _operators(lambda: [files.operator(100 + i, 99 + i if i else 2) for i in range(50_000)])
    ),
    "a product of 2^62 x 2^62": _parsers(
        _operators([files.operator(99, 2, inputs=files.product(2**62, 2**62))])
    ),
    "a product of 4,000 digits": _parsers(
        _operators([files.operator(99, 2, inputs=files.product(10**4000, -1))])
    ),
    "a product of text": _parsers(
        _operators([files.operator(99, 2, inputs=files.product("x", None))])
    ),
    "a product without inputs": _parsers(_operators([files.operator(99, 2)])),
    "offsets that go back": _parsers(_save("ids.npz", b"PK\x05\x06" + bytes(18))),
}
