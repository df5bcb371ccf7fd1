"""Bytes that the activations of a list of operators hold, at each point of a step."""

from dataclasses import dataclass

from costmodel.base.units import Bytes
from costmodel.operators.operator_list import OperatorList


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationBytes:
    """Bytes of what operators made, and of embeddings, while others have yet to read it.

    Inputs of the model and parameters are not among them.
    """

    peak: Bytes
    """While the operator runs at which they are most."""
    at_lookups: Bytes
    """Before the first operator that reads embeddings, without these."""
    at_loss: Bytes
    """Between forward and backward."""
    at_exchange: Bytes
    """When all embeddings have their gradients, these included."""


def held_bytes(operators: OperatorList[int]) -> ActivationBytes:
    """Return what a list's activations hold.

    A tensor is there from the operator that makes it to the last one that reads it, and is as large
    as the operator makes it that allocates it; views are in the memory of what they are views of.
    What an operator makes is there while it runs, read or not. Embeddings are there from the first
    operator that reads one, their gradients until the last of them is made; gradients of parameters
    are not counted beyond the operator that makes them.
    """
    listed, exchanged = operators.operators, operators.exchange_place
    begin = dict.fromkeys((e.tensor.storage for e in operators.embeddings), operators.lookup_place)
    size = {each.tensor.storage: each.tensor.num_bytes for each in operators.embeddings}
    last = dict(begin)
    for number, each in enumerate(listed):
        for tensor in each.outputs:
            if tensor.storage >= 0 and tensor.storage not in begin:
                begin[tensor.storage], size[tensor.storage] = number, tensor.num_bytes
            until = max(number, exchanged - 1) if each.embeddings else number
            last[tensor.storage] = max(until, last.get(tensor.storage, 0))
        for tensor in each.inputs:
            last[tensor.storage] = max(number, last.get(tensor.storage, 0))
    changes = [0.0] * (len(listed) + 1)
    for storage, start in begin.items():
        changes[start] += size[storage]
        changes[min(last[storage] + 1, len(listed))] -= size[storage]
    while_running, held = [], 0.0
    for change in changes[:-1]:
        held += change
        while_running.append(held)

    def after(place: int) -> Bytes:
        """Return what is held when the operators before a place have run."""
        held = (size[each] for each in begin if begin[each] < place <= last[each])
        return sum(held, 0.0)

    return ActivationBytes(
        peak=max(while_running, default=0.0),
        at_lookups=after(operators.lookup_place),
        at_loss=after(operators.loss_place),
        at_exchange=while_running[exchanged - 1] if exchanged else 0.0,
    )
