cimport cython
cimport libc.math as math
from libc.stdint cimport int32_t, int64_t

from costmodel.engine.cycles cimport Cycle
from costmodel.engine.state cimport PlanState
from costmodel.engine.step cimport Step, StepClock
from sharders.engine.rank_loads cimport RankLoads
from sharders.engine.tables cimport Choices, Move, Tables

cdef int64_t FITS, SLOW, FULL, UNKNOWN, NOT_MADE
cdef Py_ssize_t BALANCE_ROOTS
cdef double BALANCE_WEIGHT, MARGIN, MOST_PAID, inf

@cython.final
cdef class SearchState:
    cdef readonly RankLoads loads
    cdef readonly PlanState plan
    cdef readonly Tables tables
    cdef readonly Choices choices
    cdef readonly StepClock clock
    cdef readonly Step every
    cdef readonly list steps, cycles
    cdef readonly int64_t[::1] step_of, bit_of
    cdef readonly Py_ssize_t which, wanted, which_moved, max_cycles
    cdef readonly int64_t outcome
    cdef public double margin, price, balance_weight
    cdef readonly double seconds, penalised_time

    cpdef double present_time(self) noexcept
    @cython.locals(bits=int64_t, number=Py_ssize_t)
    cpdef bint rebuild(self, int64_t groups) noexcept
    @cython.locals(number=Py_ssize_t, table=Py_ssize_t, block=Py_ssize_t)
    cpdef Py_ssize_t step_times(
        self, int64_t[:, ::1] options, int32_t[:, :, ::1] ranks, double[::1] times,
        Py_ssize_t first,
    ) noexcept
    @cython.locals(spread=double, feature=Py_ssize_t, paid=double)
    cpdef double penalised(self, double seconds) noexcept
    cpdef double excess(self) noexcept
    @cython.locals(total=double, mean=double)
    cdef double power_mean(self, Py_ssize_t row) noexcept
    @cython.locals(step=Step, cycle=Cycle)
    cpdef void find_cycle(self) noexcept
    @cython.locals(before=double, has_room=bint)
    cpdef int64_t try_move(self, Move move, double limit) noexcept
    @cython.locals(index=Py_ssize_t, table=Py_ssize_t)
    cpdef bint finds_room(self, Move move) noexcept
    @cython.locals(
        sums=bint, groups=int64_t, bits=int64_t, number=Py_ssize_t, kept=bint, cycle=Cycle,
        least=double, step=Step,
    )
    cdef int64_t _timed(self, Move move, double limit) noexcept
    @cython.locals(
        groups=int64_t, sums=bint, index=Py_ssize_t, table=Py_ssize_t,
        before=Py_ssize_t, after=Py_ssize_t,
    )
    cdef (bint, int64_t) _change(self, Move move) noexcept
    @cython.locals(
        index=Py_ssize_t, table=Py_ssize_t, option=int64_t, block=Py_ssize_t, rank=int32_t
    )
    cdef void _swap(self, Move move) noexcept
    cpdef void undo(self, Move move) noexcept
    cpdef void keep(self) noexcept
    @cython.locals(block=Py_ssize_t)
    cdef Py_ssize_t block_at(self, Py_ssize_t table, Py_ssize_t place) noexcept
