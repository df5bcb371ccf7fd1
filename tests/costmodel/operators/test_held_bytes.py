from dataclasses import replace

from dense_operators import listed_step

from costmodel.operators.held_bytes import ActivationBytes, held_bytes
from costmodel.operators.operator_list import BatchSize, OperatorList, Pass

ROW = 8 * 4
SIZED = listed_step().at(BatchSize(10))


def test_the_three_places_of_a_list() -> None:
    assert (SIZED.lookup_place, SIZED.loss_place, SIZED.exchange_place) == (1, 3, 5)


def test_without_embeddings_all_places_are_the_loss() -> None:
    alone: OperatorList[int] = replace(
        SIZED,
        operators=tuple(replace(each, reads=(), embeddings=()) for each in SIZED.operators),
        embeddings=(),
    )
    assert (alone.lookup_place, alone.loss_place, alone.exchange_place) == (3, 3, 3)


def test_held_bytes_by_hand() -> None:
    # at the sum: the layer's output, the embeddings and what is made of them
    # before the lookup the output; at the loss itself, that the backward's first operator reads
    # at the exchange the sum's gradient, read later, and the embeddings'
    assert held_bytes(SIZED) == ActivationBytes(
        peak=3 * 10 * ROW, at_lookups=10 * ROW, at_loss=4, at_exchange=2 * 10 * ROW
    )


def test_embeddings_that_the_backward_reads_are_held_until_then() -> None:
    *others, last = SIZED.operators
    reads = replace(last, inputs=(*last.inputs, SIZED.embeddings[0].tensor))
    held = held_bytes(replace(SIZED, operators=(*others, reads)))
    assert held.at_loss == 4 + 10 * ROW
    assert held.at_exchange == 3 * 10 * ROW


def test_gradients_of_embeddings_are_held_until_all_are_there() -> None:
    *others, last = SIZED.operators
    again = replace(others[4], outputs=(replace(others[4].outputs[0], storage=9),))
    held = held_bytes(replace(SIZED, operators=(*others, again, last)))
    assert held.at_exchange == 3 * 10 * ROW


def test_a_list_of_the_forward_alone_has_no_backward() -> None:
    forward = tuple(each for each in SIZED.operators if each.direction is Pass.FORWARD)
    held = held_bytes(replace(SIZED, operators=forward))
    assert held.at_loss == 0.0  # nothing reads it any more
    assert held.at_exchange == 10 * ROW + 4
