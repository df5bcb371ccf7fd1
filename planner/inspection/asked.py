"""What a user says of recorded ids, beyond where they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.inspection.kinds import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be read as what; by name of a column, unless it says otherwise."""

    tables: tuple[str, ...] = ()
    """Columns that are tables, and no others; empty: told by what is in them."""
    exclude: tuple[str, ...] = ()
    """Columns that are not read."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of a table."""
    hashed: Mapping[str, int] = field(default_factory=dict)
    """Rows that ids are hashed to, before they are counted."""
    padding: Mapping[str, int] = field(default_factory=dict)
    """The id that is no lookup; that of all lists by the empty name."""
    separators: Mapping[str, str] = field(default_factory=dict)
    """What separates ids in a text; in texts of all columns by the empty name."""
    share: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns that share a table, by the table's name."""
    shuffle: bool = False
    """Whether training shuffles samples, so that a batch has any of them."""
    batch_samples: int | None = None
    delimiter: str | None = None
    """What separates columns of a text."""
    columns: tuple[str, ...] = ()
    """Names of a text's columns, in place of those it has."""

    def is_read(self, name: str) -> bool:
        """Return whether a column is read."""
        if name in self.exclude:
            return False
        shared = any(name in features for features in self.share.values())
        return not self.tables or name in self.tables or shared

    @property
    def named(self) -> tuple[str, ...]:
        """Columns that were named, which a file is to have."""
        by_name = (self.kinds, self.rows, self.hashed, self.padding, self.separators)
        tables = {*self.share}
        mapped = [name for mapping in by_name for name in mapping if name and name not in tables]
        shared = [name for features in self.share.values() for name in features]
        return tuple(dict.fromkeys([*self.tables, *self.exclude, *mapped, *shared]))
