"""Plans to begin runs with anew: all tables of one kind sharded by another type.

Tables that differ in data type, pooling or weights are in sharding groups of their own, with
collectives and kernels of their own, so that a type pays for all tables of a kind or for none.
Moves change twelve tables at once, and a set of types says nothing of kinds. On 18 problems whose
tables are of several kinds ten CPU seconds end 0.7% lower where every other run that begins anew
begins with such a plan (standard error 0.5%, 36 runs), three 1.0%. Where all are of one kind, ten
end 0.3% higher (0.2%, 30 runs).
"""

from random import Random

import numpy as np

from costmodel.step.cuts import natures
from sharders.annealing.programs import COARSE
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices

SHARES = (1.0, 1.0, 0.5)
"""Which share of the tables of a kind and type changes; one is drawn."""


class Resharding:
    """Shards tables of a kind that have one sharding type by another."""

    def __init__(self, engine: Engine, rng: Random) -> None:
        self.engine, self.rng = engine, rng
        self._kinds, examples = natures(engine.problem.workload.tables)
        self._is_one_kind = len(examples) == 1

    def changed(self, plan: Choices, types: int) -> Choices | None:
        """Return a plan with some tables sharded by another of some types (their bits).

        Each by the option that takes least alone. All tables are placed anew, and may then take
        more memory than there is. None: tables are of one kind, or no other type is offered.
        """
        if self._is_one_kind:
            return None
        tables = self.engine.search.tables
        option, type_of = np.array(plan.option, copy=True), np.asarray(tables.kind)
        drawn = self.rng.randrange(len(option))
        own = int(type_of[option[drawn]])
        others = [each for each in range(types.bit_length()) if types >> each & 1 and each != own]
        if not others:
            return None
        other, share = self.rng.choice(others), self.rng.choice(SHARES)
        is_one = (self._kinds == self._kinds[drawn]) & (type_of[option] == own)
        for table in np.flatnonzero(is_one).tolist():
            if self.rng.random() < share:
                option[table] = self._cheapest(table, other, option[table])
        self.engine.fill(COARSE, option, may_overfill=True)
        return self.engine.present()

    def _cheapest(self, table: int, wanted: int, otherwise: int) -> int:
        """Return a table's option of a type that takes least alone; if it has none, another."""
        tables = self.engine.search.tables
        first = tables.options[table]
        offered = np.asarray(tables.offered)[first : first + tables.num_offered[table]]
        of_type = offered[np.asarray(tables.kind)[offered] == wanted]
        if not len(of_type):
            return otherwise
        return int(of_type[np.argmin(np.asarray(tables.cost)[of_type])])
