"""Makes the page of TorchRec's settings from the table that the planner warns by."""

from planner.torchrec.request_treatments import REQUEST_SETTINGS
from planner.torchrec.setting_treatments import SETTINGS, Treatment

_HEAD = """# TorchRec's settings

What becomes of everything that TorchRec's planner can be told. A test walks the fields of the
installed TorchRec's classes, and tries each: what is *supported* or *approximated* must change what
is planned, what is *warned* of must be named in the planner's one warning, and what is *neutral*
must change nothing. Fields that this version does not know are warned of, too. Of modules, compute
kernels and storage reservations every one that it ships is planned with.
"""
_TITLES = {
    "EmbeddingShardingPlanner": "Arguments of EmbeddingShardingPlanner",
    "Topology": "Topology",
    "ParameterConstraints": "ParameterConstraints",
    "CacheParams": "CacheParams",
    "KeyValueParams": "KeyValueParams",
    "sharder": "Sharders",
    "fused_params": "Sharders' fused parameters",
    "table": "EmbeddingBagConfig and EmbeddingConfig",
    "GradientAccumulationConfig": "GradientAccumulationConfig, of the training loop",
    "storage_reservation": "Storage reservations",
    "module": "Modules",
    "compute_kernel": "Compute kernels",
    "ShardingPlanRequest": "ShardingPlanRequest and DryRunRequest",
    "PlannerConfig": "PlannerConfig",
    "SkuOverride": "SkuOverride, of a dry run",
}
_ORDER = list(Treatment)


def page() -> str:
    """Return the page."""
    texts, settings = [_HEAD], {**SETTINGS, **REQUEST_SETTINGS}
    for owner, title in _TITLES.items():
        lines = [f"## {title}", "", "| setting | is | |", "|---|---|---|"]
        own = sorted(settings[owner].items(), key=lambda pair: _ORDER.index(pair[1].treatment))
        lines += [f"| `{name}` | {each.treatment} | {each.text} |" for name, each in own]
        texts.append("\n".join(lines))
    return "\n".join(texts) + "\n"
