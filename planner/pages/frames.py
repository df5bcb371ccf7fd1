"""Data frames, where pandas is installed."""

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.base.errors import MissingDependencyError


def dataframe(rows: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401 - a pandas.DataFrame
    """Return rows as a ``pandas.DataFrame``.

    Raises
    ------
    MissingDependencyError
        pandas is not installed.

    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependencyError("pandas", "a data frame", "notebook") from None
    return pd.DataFrame(list(rows))
