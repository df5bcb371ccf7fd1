"""Random numbers in compiled code, from one word of state: SplitMix64.

Numba has a generator of its own, but what is compiled with it needs numba beside it, and draws more
slowly.

References
----------
Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.

"""

import numpy as np

from costmodel.execution.native import inlined

GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""Added for every number: odd, so that all 2**64 states come before one comes again."""
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""What the state is multiplied by, and ``SHIFTS`` how far it is shifted, until all of its bits have
changed all of the number's (Stafford's Mix13, which the paper takes)."""
SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
UNUSED = np.uint64(11)
"""Bits that a float64 has no place for."""


@inlined
def begin(state, seed):
    """Begin anew: the seed decides what is drawn."""
    state[0] = np.uint64(seed)


@inlined
def uniform(state):
    """Draw a number from 0 to 1, but not 1."""
    state[0] += GAMMA
    mixed = (state[0] ^ (state[0] >> SHIFTS[0])) * FIRST
    mixed = (mixed ^ (mixed >> SHIFTS[1])) * SECOND
    mixed ^= mixed >> SHIFTS[2]
    return np.float64(mixed >> UNUSED) * 2.0**-53


@inlined
def below(state, count):
    """Draw a whole number from 0 to ``count``, but not ``count``."""
    return int(count * uniform(state))
