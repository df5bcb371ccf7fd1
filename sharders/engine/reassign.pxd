cimport cython
from libc.stdint cimport int64_t

from sharders.engine.moves cimport MoveProposer
from sharders.engine.rank_blocks cimport RankBlocks
from sharders.engine.rank_loads cimport RankLoads
from sharders.engine.search_state cimport SearchState
from sharders.engine.tables cimport Choices, Move, Tables

cdef Py_ssize_t NUM_FEATURES, BALANCE_ROOTS
cdef double LEAST_GAIN

cdef inline double _power(double seconds) noexcept

@cython.final
cdef class Reassigner:
    cdef readonly MoveProposer proposer
    cdef readonly SearchState search
    cdef readonly RankBlocks blocks
    cdef readonly Py_ssize_t most, lookups, slowest, other, count, seen
    cdef readonly double[::1] here, there, weight, counted, bytes
    cdef readonly int64_t[::1] table, block, is_here, first
    cdef readonly double[:, ::1] seconds
    cdef readonly double total

    @cython.locals(
        choices=Choices, order=int64_t[::1], division=int64_t, index=Py_ssize_t,
        table=Py_ssize_t, row=Py_ssize_t, goes_to=Py_ssize_t,
    )
    cpdef void draw(self, Move move) noexcept
    @cython.locals(
        search=SearchState, tables=Tables, local=Py_ssize_t, widest=Py_ssize_t, entry=int64_t,
        table=Py_ssize_t, block=Py_ssize_t, index=Py_ssize_t,
    )
    cdef void _gather(self, Py_ssize_t rank, Py_ssize_t other, int64_t is_here) noexcept
    @cython.locals(
        search=SearchState, index=Py_ssize_t, feature=Py_ssize_t, free=Py_ssize_t,
        left_here=double, left_there=double, least_here=double, least_there=double,
        division=int64_t, best=int64_t, least=double, number=int64_t, sign=double, row=Py_ssize_t,
    )
    cdef int64_t _best_division(self) noexcept
    @cython.locals(
        search=SearchState, tables=Tables, option=Py_ssize_t, size=Py_ssize_t, first=Py_ssize_t,
        feature=Py_ssize_t, rate=double,
    )
    cdef void _describe(self, Py_ssize_t index) noexcept
    @cython.locals(
        search=SearchState, loads=RankLoads, powers=Py_ssize_t, rate=double, total=double,
        both=double,
    )
    cdef void _begin(self, Py_ssize_t row) noexcept
    @cython.locals(both=double)
    cdef inline void _shift(self, Py_ssize_t row, double seconds) noexcept
