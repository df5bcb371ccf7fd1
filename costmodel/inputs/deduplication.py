"""The ids of a batch that are left once every rank sends each of its own once."""

from costmodel.inputs.distribution import InputDistribution, UniqueFraction, unique_curve


def deduplicated(
    inputs: InputDistribution, num_embeddings: int, lookups: float, num_ranks: int
) -> tuple[float, InputDistribution]:
    """Return the number of ids that a rank sends, and how those of all ranks spread over rows.

    With U(n) the distinct rows among n lookups of the table, each of W ranks with n lookups sends
    U(n) ids, and all of them together hit U(W n) rows: the unique fraction is U(W n) / (W U(n)).

    Parameters
    ----------
    inputs, num_embeddings
        How the ids spread before, and the table's rows.
    lookups
        n, of one rank's batch.
    num_ranks
        W.

    Notes
    -----
    The law that has this unique fraction stands for the ids that are left (``UniqueFraction``): in
    truth none of them is hit more than W times.

    """
    curve = unique_curve(inputs, num_embeddings)
    sent = max(1.0, curve.unique_rows(lookups))
    everywhere = num_ranks * sent
    fraction = min(1.0, max(1.0, curve.unique_rows(num_ranks * lookups)) / everywhere)
    return sent, UniqueFraction(fraction=fraction, num_lookups=everywhere)
