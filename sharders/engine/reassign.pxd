cimport cython
from libc.stdint cimport int64_t

from costmodel.engine.state cimport PlanState
from costmodel.engine.step cimport vectorised_void
from sharders.engine.moves cimport MoveProposer
from sharders.engine.rank_blocks cimport RankBlocks
from sharders.engine.rank_loads cimport RankLoads
from sharders.engine.search_state cimport SearchState
from sharders.engine.tables cimport Choices, Move, Tables

cdef Py_ssize_t NUM_FEATURES, LOOKUPS, HELD, ANY, BALANCE_ROOTS, MAX_REASSIGNED
cdef double LEAST_GAIN

@cython.final
cdef class Reassigner:
    cdef readonly MoveProposer proposer
    cdef readonly SearchState search
    cdef readonly RankBlocks blocks
    cdef readonly Py_ssize_t slowest, other, count, seen
    cdef readonly double[::1] here, there, moved, counted, more
    cdef readonly int64_t[::1] table, block, is_here, first
    cdef readonly double[:, ::1] taken

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
        plan=PlanState, loads=RankLoads, number=Py_ssize_t, index=Py_ssize_t, row=Py_ssize_t,
        here=double, there=double, free_here=double, free_there=double, least_here=double,
        least_there=double, best=Py_ssize_t, least=double, moved=double,
    )
    cdef Py_ssize_t _best_division(self) noexcept
    @cython.locals(
        search=SearchState, tables=Tables, option=Py_ssize_t, size=Py_ssize_t, first=Py_ssize_t,
        feature=Py_ssize_t, rate=double,
    )
    cdef void _describe(self, Py_ssize_t index) noexcept
    @cython.locals(
        loads=RankLoads, feature=Py_ssize_t, rate=double, here=double, there=double
    )
    cdef void _add_exchange(self, Py_ssize_t row) noexcept
    @cython.locals(any_moves=bint, index=Py_ssize_t, is_meant=bint, amount=double)
    cdef bint _any_moves(self, Py_ssize_t column, Py_ssize_t first) noexcept
    @cython.locals(index=Py_ssize_t)
    cdef void _sum_moved(self) noexcept
    @cython.locals(number=Py_ssize_t)
    cdef vectorised_void _double(self, Py_ssize_t count, double amount) noexcept
    @cython.locals(total=double, weight=double)
    cdef void _add(self, double of_slowest, double of_other, Py_ssize_t powers) noexcept
    @cython.locals(number=Py_ssize_t)
    cdef vectorised_void _add_powers(
        self, double of_slowest, double of_other, double weight, Py_ssize_t count
    ) noexcept
