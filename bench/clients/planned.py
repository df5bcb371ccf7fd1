"""Plans every configuration of TorchEasyRec for 8 H100, with both planners and without training."""

import gc
import os
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist

from bench.clients.client import CONFIGURATION, RunSettings
from bench.clients.tzrec import num_negatives
from bench.clients.warned import warnings_kept
from bench.clients.watched import REPLACED, counted, watched_planner

GPUS = 8
HARDWARE = "h100-sxm"
FOLDERS = ("examples", "tzrec/tests/configs")


def plan_all(source: Path, settings: RunSettings) -> Iterator[dict[str, Any]]:
    """Yield how each configuration of a checkout is planned; those that do not build say why.

    Their main module is imported (``tzrec.import_main``). What is planned is what their training
    function plans on GPUs, which it asks torch for: so its parts are called one by one.
    """
    for folder in FOLDERS:
        for path in sorted((source / folder).glob(f"*{CONFIGURATION}")):
            row: dict[str, Any] = {"configuration": path.stem}
            try:
                with chdir(source):  # some name files of theirs
                    config, model = built(path)
            except Exception as error:  # noqa: BLE001 - whatever theirs raises
                yield row | {"not_built": _said(error)}
                continue
            for ours in (False, True):
                row["ours" if ours else "theirs"] = _planned(config, model, settings, ours=ours)
            yield row
            gc.collect()


def built(path: Path) -> tuple[Any, torch.nn.Module]:
    """Return a configuration and its model, with the tables' optimizer in the backward."""
    import tzrec.main as theirs

    config = theirs.config_util.load_pipeline_config(str(path))
    data, training = config.data_config, config.train_config
    features = theirs._create_features(list(config.feature_configs), data)  # noqa: SLF001
    model = theirs._create_model(  # noqa: SLF001 - as its training function does
        config.model_config,
        features,
        list(data.label_fields),
        sample_weights=list(data.sample_weight_fields),
        sampler_type=theirs._get_sampler_type(data),  # noqa: SLF001
    )
    wrapped = theirs.TrainWrapper(
        model, device=torch.device("cpu"), mixed_precision=training.mixed_precision or None
    )
    kind, settings = theirs.optimizer_builder.create_sparse_optimizer(training.sparse_optimizer)
    trained, frozen = model.sparse_parameters()
    theirs.apply_optimizer_in_backward(kind, trained, settings)
    theirs.apply_optimizer_in_backward(theirs.SGD, frozen, {"lr": 0.0})
    return config, wrapped


def _planned(
    config: Any,  # noqa: ANN401 - theirs
    model: torch.nn.Module,
    settings: RunSettings,
    *,
    ours: bool,
) -> dict[str, Any]:
    from torchrec.distributed.sharding_plan import get_default_sharders
    from tzrec.utils import plan_util

    planning: dict[str, Any] = {}
    kind = watched_planner(planning, ours=ours, timeout_seconds=settings.seconds, hardware=HARDWARE)
    training = config.train_config
    given = training.HasField("global_embedding_constraints")
    error = ""
    with (
        warnings_kept() as lines,
        patch.object(plan_util, REPLACED, kind),
        patch.object(dist, "get_world_size", return_value=GPUS),
        patch.dict(os.environ, LOCAL_WORLD_SIZE=str(GPUS)),
    ):
        try:
            plan_util.create_planner(
                torch.device("cuda"),
                config.data_config.batch_size + num_negatives(config.data_config),
                global_constraints_cfg=training.global_embedding_constraints if given else None,
                model=model,
            ).plan(model, get_default_sharders())
        except Exception as raised:  # noqa: BLE001 - whatever a planner raises
            error = _said(raised)
    types = counted(planning.pop("shardings", {}))
    return {**planning, "types": types, "warnings": lines if ours else [], "error": error}


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]
