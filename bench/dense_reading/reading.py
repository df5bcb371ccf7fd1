"""Reads the dense part of models that others wrote, beside what torch counts in a larger batch.

python -m bench.dense_reading [NAME ...] [--checkouts FOLDER] [--write]

The five of ``examples/models``, TorchRec's own, and with FOLDER those of checkouts in it
(``bench.dense_reading.checkouts``), and all configurations of github.com/alibaba/TorchEasyRec (see
``bench.clients``).
Each is read from small batches; the list is then asked for a batch of 200 samples with longer
sequences, which is run and counted: FLOP by torch's ``FlopCounterMode``, operators, parameters.
Of ``examples/models`` a step is profiled, too, for its operators and bytes (``profiled``).
"""

import gc
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from functools import partial
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from torchrec.modules.embedding_modules import (
    EmbeddingBagCollectionInterface,
    EmbeddingCollectionInterface,
)

from bench.clients import tzrec
from bench.clients.absent import stand_in_for
from bench.clients.client import CONFIGURATION, TZREC_ABSENT
from bench.dense_reading.checkouts import ABSENT, CANDIDATES, CHECKED_OUT, Batches
from bench.dense_reading.models import TORCHREC
from bench.dense_reading.profiled import beside_the_profiler
from bench.documented import ROOT
from bench.kept import markdown, parser_of, provenance, read, write
from costmodel.operators.work import work_of
from planner.operators.batches import BatchArguments
from planner.operators.combining import size_of
from planner.operators.made_batches import SIZES, MadeSize, lengths, made_batches
from planner.operators.reading import read_operators
from planner.operators.recording import record
from planner.operators.refusals import ReadingError
from planner.operators.stand_ins import DenseCopy, dense_copy

RESULTS = ROOT / "bench" / "results" / "dense_reading.json"
EXAMPLES = ("dlrm", "dcnv2", "deepfm", "mmoe", "sasrec")
LARGE = MadeSize(200, 37, 2000)
"""The batch that is counted; ids of one feature."""
_FOLDERS = ("examples", "tzrec/tests/configs")
_COLLECTIONS = (EmbeddingBagCollectionInterface, EmbeddingCollectionInterface)
_FOLDER = re.compile(r"/[^\s)]*/(?=[^/\s]+/[^/\s]+\.py)")
"""Where a file is, but for the last folder."""
_HSTU = ("dlrm_hstu", "ultra_hstu", "hstu_match")


def _attention(query: Any, key: Any, value: Any, *_: object, **__: object) -> int:  # noqa: ANN401 - sizes
    return int(sdpa_flop_count(query, key, value))


def _backward(gradient: Any, *others: Any, **_: object) -> int:  # noqa: ANN401 - sizes
    return int(sdpa_backward_flop_count(gradient, *others[:3]))


_aten = torch.ops.aten
ATTENTION = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,  # noqa: SLF001
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,  # noqa: SLF001
}
"""What a CPU runs, and torch counts under other names only."""


def main() -> None:
    """Read, print, and with --write keep the results."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of a model's name")
    parser.add_argument("--checkouts", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    found = dict(read(RESULTS).get("models", {}))
    for name, make in _models(args):
        if args.names and not any(part in name for part in args.names):
            continue
        found[name] = make()
        print(name, found[name], flush=True)
        gc.collect()
        if args.write:
            write(RESULTS, {**provenance(), "torch": torch.__version__, "models": found})
    print(table(found))


def _models(args: Namespace) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Yield names of models, and functions that make their rows."""
    for name in EXAMPLES:
        yield f"examples/models, {name}", partial(example_row, name)
    for name, make in TORCHREC.items():
        yield f"TorchRec, {name}", partial(row, partial(made, make))
    if args.checkouts is None:
        return
    folder = args.checkouts.resolve()
    stand_in_for((*TZREC_ABSENT, *ABSENT))
    for name, checked_out in CHECKED_OUT.items():
        yield name, partial(row, partial(checked_out, folder))
    source = folder / "TorchEasyRec"
    tzrec.generate_protocol(source)
    tzrec.import_main(source)
    for folder in _FOLDERS:
        for path in sorted((source / folder).glob(f"*{CONFIGURATION}")):
            name = f"TorchEasyRec, {path.stem}"
            yield name, partial(row, partial(_configured, source, path))


def example_row(name: str) -> dict[str, Any]:
    """Return the row of one of ``examples/models``, with a profiled step."""
    make = import_module(f"examples.models.{name}").make_model
    return {**row(partial(made, make)), "profiled": beside_the_profiler(make())}


def made(make: Callable[[], torch.nn.Module]) -> tuple[torch.nn.Module, None]:
    """Return a model whose batches are made of its features."""
    return make(), None


def _configured(source: Path, path: Path) -> tuple[torch.nn.Module, Batches]:
    """Return a configuration's model, and a function that makes batches for it."""
    from bench.clients.planned import built

    with chdir(source):
        config, model = built(path)
    theirs = sys.modules["tzrec.main"]
    features = theirs._create_features(list(config.feature_configs), config.data_config)  # noqa: SLF001
    is_hstu = config.model_config.WhichOneof("model") in _HSTU
    if hasattr(model.model, "set_kernel"):
        model.model.set_kernel(import_module("tzrec.ops").Kernel.PYTORCH)

    def batch(size: MadeSize) -> Any:  # noqa: ANN401 - theirs
        with chdir(source):
            return tzrec.made_batch(
                config.data_config,
                features,
                size.samples,
                seed=size.samples,
                lengths=lambda number: lengths(size._replace(samples=number)),
                candidates=CANDIDATES if is_hstu else 0,
            )

    return model, batch


def row(make: Callable[[], Any]) -> dict[str, Any]:
    """Return what is read of a model beside what is counted, or why it is not."""
    try:
        model, batches = make()
        given = None if batches is None else [batches(size) for size in SIZES]
    except Exception as error:  # noqa: BLE001 - whatever theirs raises
        return {"not_built": _said(error)}
    began = process_time()
    try:
        operators = read_operators(model, given)
    except ReadingError as error:
        return {"refused": _FOLDER.sub("", str(error))}
    seconds = process_time() - began
    copy = dense_copy(model)
    large = _large(model, copy, batches)  # made outside, as what making it runs would be counted
    with FlopCounterMode(display=False, custom_mapping=ATTENTION) as counter:
        record(copy, large)
    run = record(copy, _large(model, copy, batches))
    sized = operators.at(size_of(run, operators.groups))
    return {
        "operators": len(sized.operators),
        "operators_counted": len(run.operators),
        "parameters": operators.num_parameters,
        "parameters_counted": _dense_parameters(model),
        "flop": work_of(sized).flop,
        "flop_counted": counter.get_total_flops(),
        "unexplained": list(operators.unexplained),
        "cpu_seconds": round(seconds, 2),
    }


def _large(model: torch.nn.Module, copy: DenseCopy, batches: Batches | None) -> BatchArguments:
    """Return the large batch, made anew: jagged tensors keep what was worked out of them."""
    if batches is None:
        return made_batches(model, copy, [LARGE])[0]
    return BatchArguments.of(batches(LARGE))


def _dense_parameters(model: torch.nn.Module) -> int:
    """Return the elements of all parameters but those of tables."""
    tables = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, _COLLECTIONS)
        for parameter in module.parameters()
    }
    return sum(each.numel() for each in model.parameters() if id(each) not in tables)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:120]


def table(models: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row for every model, as Markdown."""
    head = ("model", "operators", "counted", "parameters", "counted", "GFLOP", "counted", "CPU s")
    return markdown(head, [_cells(*each) for each in models.items()])


def _cells(name: str, row: Mapping[str, Any]) -> Sequence[str]:
    for key in ("not_built", "refused"):
        if key in row:
            return (name, f"{key.replace('_', ' ')}: {row[key]}", *[""] * 6)
    counts = (
        f"{row[kind + of]:,}" for kind in ("operators", "parameters") for of in ("", "_counted")
    )
    flop = (f"{row['flop' + of] / 1e9:,.3f}" for of in ("", "_counted"))
    return (name, *counts, *flop, f"{row['cpu_seconds']:.1f}")
