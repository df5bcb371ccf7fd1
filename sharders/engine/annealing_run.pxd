cimport cython
cimport libc.math as math
from libc.stdint cimport int64_t

from sharders.engine.eject cimport Ejector
from sharders.engine.moves cimport MoveProposer, RandomNumbers
from sharders.engine.rank_blocks cimport RankBlocks
from sharders.engine.reassign cimport Reassigner
from sharders.engine.search_state cimport SearchState
from sharders.engine.tables cimport Choices, Move

cdef int64_t FITS, FULL, SLOW, UNKNOWN
cdef double IMPROVED, NO_EXCESS, LEAST, MOST, inf
cdef double REASSIGNED_SHARE, FIRST_PRICE, PRICE_STEP
cdef Py_ssize_t REFRESH_EVERY, MAX_EJECTED

@cython.final
cdef class AnnealingRun:
    cdef readonly SearchState search
    cdef readonly Py_ssize_t num_changed, ejected, moves, decided, timed, last_gain
    cdef readonly RandomNumbers rng
    cdef readonly MoveProposer proposer
    cdef readonly RankBlocks blocks
    cdef readonly Ejector ejector
    cdef readonly Reassigner reassigner
    cdef readonly Move move
    cdef readonly int64_t[::1] is_changed, changed
    cdef readonly bint lacks_step
    cdef readonly Choices best
    cdef readonly double best_time, penalised_time
    cdef readonly double price, first_time

    @cython.locals(
        search=SearchState, move=Move, before=Py_ssize_t, progress=double, temperature=double, limit=double, outcome=int64_t, lacks=bint, excess=double,
    )
    cpdef Py_ssize_t anneal(
        self, Py_ssize_t count, double hot, double cold, double length, bint placing
    ) noexcept
    @cython.locals(before=double, excess=double)
    cdef void _change_price(self) noexcept
    @cython.locals(index=Py_ssize_t, table=Py_ssize_t, is_better=bint)
    cdef void _take(self) noexcept
    @cython.locals(index=Py_ssize_t, table=Py_ssize_t)
    cdef void _remember(self) noexcept
