cimport cython
from libc.stdint cimport int64_t

from costmodel.engine.state cimport PlanState
from costmodel.engine.step cimport Step, StepClock

cdef int64_t CONSTANT, CROSS_NODE, INTRA_NODE, ISSUE, NUM_STEPS, WORLD
cdef Py_ssize_t COMPARED
cdef int64_t JOINED, EQUAL, ANY
cdef double ROUNDING

@cython.final
cdef class Cycle:
    cdef readonly Py_ssize_t begin, end, found_op, found_rank
    cdef readonly int64_t[::1] rows, ranks, kinds, seen, is_on
    cdef readonly double[::1] lags, sums
    cdef readonly double constant, found_lag

    cpdef bint is_known(self) noexcept

    @cython.locals(
        total=double, count=Py_ssize_t, last=Py_ssize_t, other=Py_ssize_t, index=Py_ssize_t,
        row=Py_ssize_t, kind=int64_t,
    )
    cpdef double bound(self, PlanState state) noexcept

    @cython.locals(longest=double, other=Py_ssize_t)
    cdef double _largest_sum(self, Py_ssize_t count) noexcept

    @cython.locals(row=Py_ssize_t, op=Py_ssize_t, count=Py_ssize_t, number=Py_ssize_t, rank=Py_ssize_t)
    cdef void trace(self, PlanState state, Step step, StepClock clock) noexcept

    @cython.locals(index=Py_ssize_t)
    cdef bint _is_closed(self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t rank) noexcept

    @cython.locals(now=Py_ssize_t, latest=double, index=Py_ssize_t, op=Py_ssize_t, rank=Py_ssize_t)
    cdef void _find_last(self, Step step, StepClock clock) noexcept

    @cython.locals(
        now=Py_ssize_t, before=Py_ssize_t, latest=double, group=int64_t, entry=Py_ssize_t,
        source=Py_ssize_t, lag=double, end=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t,
        stride=Py_ssize_t, member=Py_ssize_t, together=bint, start=double,
    )
    cdef bint _find_waited_for(
        self, PlanState state, Step step, StepClock clock,
        Py_ssize_t op, Py_ssize_t rank, Py_ssize_t number
    ) noexcept

    cdef void _add(self, Step step, Py_ssize_t index, Py_ssize_t op, Py_ssize_t rank) noexcept

    @cython.locals(index=Py_ssize_t, op=Py_ssize_t)
    cdef void _close(self, Step step) noexcept
