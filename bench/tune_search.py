"""What a parameter of the search is worth: `python -m bench.tune_search PARAMETER VALUE ...`.

    python -m bench.tune_search annealing.moves.critical_share 0.6 0.9 --seconds 1 --seeds 0 1 2
    python -m bench.tune_search portfolio.members.tuned_greedy.time_fraction 0.4 0.6

A parameter is a path into ``sharders.engine.params.AnnealingParams`` (``annealing``) or
``sharders.PortfolioParams`` (``portfolio``). ``auto`` searches for so many CPU seconds with the
value that is there and with every other one, from the same seeds, each run in a process of its own.
Printed is, by instance, how much longer the step found is than with the present value (median of
the seeds), and over all instances the mean of all seeds with its standard error: a difference
within two of these is none. Values are changed by hand where the mean says so; instances to tune on
are not those to judge by.
"""

import argparse
import ast
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log, sqrt
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from bench.plan_quality import INSTANCES, isolated
from costmodel.base.units import Seconds
from planner.planning.plugins import AUTO
from planner.planning.search import Search, run_sharders, sharders_for
from sharders import PORTFOLIO, PortfolioParams
from sharders.engine.params import AnnealingParams


class SearchParams(NamedTuple):
    """All parameters of ``auto``."""

    annealing: AnnealingParams = AnnealingParams()
    portfolio: PortfolioParams = PORTFOLIO


def value_at(params: Any, path: Sequence[str]) -> object:  # noqa: ANN401 - any level of them
    """Return the parameter at a path.

    Raises
    ------
    ValueError
        There is none.

    """
    for name in path:
        inner = params.get(name) if isinstance(params, Mapping) else getattr(params, name, None)
        if inner is None or callable(inner):
            raise ValueError(f"no `{name}` in {type(params).__name__}: {'.'.join(path)}")
        params = inner
    return params


def with_value(params: Any, path: Sequence[str], value: object) -> Any:  # noqa: ANN401
    """Return parameters of which the one at a path has another value."""
    if not path:
        return value
    name, *rest = path
    changed = with_value(value_at(params, [name]), rest, value)
    if isinstance(params, Mapping):
        return {**params, name: changed}
    if isinstance(params, SearchParams):
        return params._replace(**{name: changed})
    return replace(params, **{name: changed})


def search_with(params: SearchParams, *, seconds: Seconds, seed: int) -> Search:
    """Return a search of so many CPU seconds with other parameters."""
    return Search(
        seed=seed,
        time_limit=seconds,
        clock=time.process_time,
        patience=float("inf"),
        portfolio=params.portfolio,
        fields={"annealing": {"params": params.annealing}},
    )


def step_found(name: str, params: SearchParams, seconds: Seconds, seed: int) -> Seconds:
    """Return the step of the plan that ``auto`` finds on an instance."""
    search = search_with(params, seconds=seconds, seed=seed)
    attempts = run_sharders(sharders_for(AUTO), INSTANCES[name].problem(), search)
    return min(each.step_time for each in attempts)


def steps_found(
    params: SearchParams, names: Sequence[str], seconds: Seconds, seeds: Sequence[int]
) -> dict[str, list[Seconds]]:
    """Return the steps found by instance, in the order of the seeds."""
    return {
        name: [isolated(step_found, name, params, seconds, seed) for seed in seeds]
        for name in names
    }


def line(
    label: str, found: Mapping[str, Sequence[Seconds]], present: Mapping[str, Sequence[Seconds]]
) -> str:
    """Return how some steps compare with the present ones, as a line of a table."""
    ratios = [
        log(after / before)
        for name, steps in found.items()
        for after, before in zip(steps, present[name], strict=True)
    ]
    error = stdev(ratios) / sqrt(len(ratios)) if len(ratios) > 1 else 0.0
    parts = [median(found[name]) / median(present[name]) - 1 for name in found]
    columns = "".join(f"{part:>+9.2%}" for part in parts)
    return f"{label:<14}{columns}   all {mean(ratios):+.2%} ± {error:.2%}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("parameter", help="such as annealing.moves.critical_share")
    parser.add_argument("values", nargs="+", type=ast.literal_eval)
    parser.add_argument("--instances", nargs="+", choices=INSTANCES, default=list(INSTANCES))
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    args = parser.parse_args()
    path = args.parameter.split(".")
    try:
        present = value_at(SearchParams(), path)
    except ValueError as error:
        parser.error(str(error))
    print(f"{args.parameter}, {args.seconds:g} CPU s, {len(args.seeds)} seeds; step over today's")
    print(f"{'':<14}" + "".join(f"{name:>9}" for name in args.instances))
    today = steps_found(SearchParams(), args.instances, args.seconds, args.seeds)
    times = "".join(f"{1e3 * median(today[name]):>9.3f}" for name in args.instances)
    print(f"{present!s:<14}{times}   ms", flush=True)
    for value in args.values:
        params = with_value(SearchParams(), path, value)
        found = steps_found(params, args.instances, args.seconds, args.seeds)
        print(line(str(value), found, today), flush=True)


if __name__ == "__main__":
    main()
