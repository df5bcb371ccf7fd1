"""Black-box search over the weights and thresholds of a greedy, by Optuna."""

from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from costmodel.base.errors import InputError, MissingDependencyError, Problem
from costmodel.base.units import Seconds
from sharders.greedy.cost_greedy import CostGreedy, GreedyPlans
from sharders.greedy.tuning import NEUTRAL, RANGES
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

if TYPE_CHECKING:
    import optuna

    from costmodel.domain.plan import ShardingPlan

JOURNAL = "journal://"
MOST_COLLISIONS = 10
PATIENCE = 60
"""Trials without a faster plan before the search ends."""


@dataclass(frozen=True, slots=True)
class OptunaSearch:
    """Tunes ``cost_greedy``: its two thresholds, a weight per sharding type, one for memory.

    Trials alternate between TPE (Bergstra et al., NeurIPS 2011) and CMA-ES (Hansen and Ostermeier,
    2001) in one study; each makes a plan by a rule (``engine.fill``), and times it. With a
    storage URL (``sqlite:///study.db``, ``journal://study.log``, ``mysql://...``) several
    processes or machines work on one study, and each returns the best plan of all. Never worse
    than ``cost_greedy`` with its own thresholds. Deterministic for a seed when alone.
    """

    storage: str | None = None
    study: str | None = None
    """Name in the storage; None: the workload's name, the topology, and a digest of both."""
    patience: int = PATIENCE

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan when ``PATIENCE`` trials bring nothing, or the budget is spent."""
        studies = self._studies(problem, rng)  # first, as Optuna may not be installed
        greedy = replace(budget, max_evaluations=_half(budget.max_evaluations))
        start = CostGreedy().shard(problem, greedy, rng)
        if budget.spent(start.evaluated):
            return replace(start, status=SearchStatus.LIMIT)
        trials = _Trials(problem, budget, start)
        quiet = 0
        while quiet < self.patience and not budget.spent(trials.evaluated):
            study = studies[quiet % len(studies)]
            quiet = 0 if trials.run(study) else quiet + 1
        if self.storage is not None:
            trials.take_over(studies[0])
        limit = budget.spent(trials.evaluated)
        return SearchResult(
            plan=trials.best[1],
            step_time=trials.best[0],
            status=SearchStatus.LIMIT if limit else SearchStatus.CONVERGED,
            evaluated=trials.evaluated,
        )

    def _studies(self, problem: ShardingProblem, rng: Random) -> "tuple[optuna.Study, ...]":
        """Return the study, once with each sampler.

        Raises
        ------
        MissingDependencyError
            Optuna, or the CMA-ES it uses, is not installed.

        """
        try:
            import cmaes  # noqa: F401 -- optuna asks for it only when it samples
            import optuna
        except ImportError as error:
            name = error.name or "optuna"
            raise MissingDependencyError(name, "the sharder `optuna`", "search") from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = _storage(self.storage)
        seeds = [rng.randrange(2**31) for _ in range(2)]
        samplers = (
            optuna.samplers.TPESampler(seed=seeds[0], multivariate=False),
            optuna.samplers.CmaEsSampler(seed=seeds[1], n_startup_trials=8),
        )
        return tuple(
            optuna.create_study(
                storage=storage,
                study_name=self.study or study_name(problem),
                sampler=sampler,
                load_if_exists=True,
            )
            for sampler in samplers
        )


def study_name(problem: ShardingProblem) -> str:
    """Return a name that only searches for the same problem share."""
    topology = problem.topology
    digest = crc32(repr((problem.workload, topology)).encode())
    places = f"{topology.num_nodes} x {topology.local_world_size}"
    return f"{problem.workload.name} on {places} ({digest:08x})"


def _storage(url: str | None) -> "optuna.storages.BaseStorage":
    """Return where trials are kept: in memory, or at a URL; a journal is one file, on NFS, too.

    Raises
    ------
    InputError
        Nothing can be kept there.

    """
    import optuna
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy.exc import DatabaseError, SQLAlchemyError

    if url is None:
        return optuna.storages.InMemoryStorage()
    try:
        if url.startswith(JOURNAL):
            backend = JournalFileBackend(url.removeprefix(JOURNAL))
            return optuna.storages.JournalStorage(backend)
        for _ in range(MOST_COLLISIONS):
            # another process may be making the tables of the same database
            with suppress(DatabaseError):
                return optuna.storages.RDBStorage(url)
        return optuna.storages.RDBStorage(url)
    except (SQLAlchemyError, ImportError, OSError) as error:
        reason = str(error).splitlines()[0]
        problem = Problem(message=f"cannot keep an Optuna study there: {reason}")
        raise InputError(url, (problem,)) from error


class _Trials:
    """The best plan of the trials so far."""

    def __init__(self, problem: ShardingProblem, budget: Budget, start: SearchResult) -> None:
        self.problem, self.budget = problem, budget
        self.greedy = GreedyPlans(problem)
        self.best: tuple[Seconds, ShardingPlan] = (start.step_time, start.plan)
        self.evaluated = start.evaluated

    def run(self, study: "optuna.Study") -> bool:
        """Run one trial, and return whether it found a faster plan."""
        trial = study.ask()
        parameters = suggested(trial)
        self.evaluated += 1
        step_time = self.greedy.step_time(parameters)
        study.tell(trial, min(step_time, 2 * self.best[0]))
        return self._note(step_time)

    def take_over(self, study: "optuna.Study") -> None:
        """Make the best plan of the study the best one, if another process found it."""
        import optuna

        completed = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
        if completed and study.best_value < self.best[0] * (1 - 1e-9):
            self._note(self.greedy.step_time({**NEUTRAL, **study.best_params}))

    def _note(self, step_time: Seconds) -> bool:
        """Keep the plan made last if it is the fastest, and return whether it is."""
        if step_time >= self.best[0]:
            return False
        self.best = (step_time, self.greedy.plan(self.greedy.choices()))
        self.budget.report(Progress(evaluated=self.evaluated, best=step_time))
        return True


def suggested(trial: "optuna.Trial") -> dict[str, float]:
    """Return the parameters that a trial suggests."""
    suggestions = {
        name: trial.suggest_float(name, low, high, log=name == "split_above")
        for name, (low, high) in RANGES.items()
    }
    return {**NEUTRAL, **suggestions}


def _half(evaluations: int | None) -> int | None:
    """Return half of the evaluations; None: they are not counted."""
    return None if evaluations is None else max(1, evaluations // 2)
