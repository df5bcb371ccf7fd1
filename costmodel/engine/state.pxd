cimport cython
from libc.stdint cimport int64_t

from costmodel.engine.step cimport Step
from costmodel.kernels.times cimport LookupTimes, StreamTimes

cdef int64_t BACKWARD, CONSTANT, EXCHANGE, FORWARD, GIVEN, INTRA_NODE, ISSUE, LINEAR
cdef int64_t NO_GROUP, NONE, ONLY, WEIGHT_GRADIENT
cdef Py_ssize_t NUM_TRAFFIC, LOOKUPS

@cython.final
cdef class Journal:
    cdef readonly int64_t[::1] cells
    cdef readonly double[::1] values
    cdef public Py_ssize_t length

@cython.final
cdef class PlanState:
    cdef readonly Py_ssize_t num_ranks, local_ranks, whole, forward, backward, steps, num_durations
    cdef readonly Py_ssize_t num_rank_features, load_width, num_changed
    cdef readonly StreamTimes streams
    cdef readonly LookupTimes lookups
    cdef readonly double[:, ::1] numbers, loads
    cdef readonly double[::1] flat, flat_loads
    cdef readonly int64_t[::1] touched_starts, touched_ops, node_of, changed, is_changed
    cdef readonly Journal journal, saved

    @cython.locals(cell=Py_ssize_t, count=Py_ssize_t)
    cdef void put(self, Py_ssize_t row, Py_ssize_t rank, double value) noexcept

    @cython.locals(cell=Py_ssize_t, count=Py_ssize_t, index=Py_ssize_t)
    cdef void save(self, Py_ssize_t rank, Py_ssize_t first) noexcept

    @cython.locals(cell=Py_ssize_t, entry=Py_ssize_t, index=Py_ssize_t)
    cdef void rollback(self) noexcept

    cdef void commit(self) noexcept

    cpdef void note_changed(self, Py_ssize_t rank) noexcept

    @cython.locals(rank=Py_ssize_t)
    cpdef void note_all_changed(self) noexcept

    @cython.locals(index=Py_ssize_t)
    cpdef void clear_changed(self) noexcept

    @cython.locals(kernel=Py_ssize_t, first=Py_ssize_t, rank=Py_ssize_t)
    cpdef void look_up_all(self) noexcept

    @cython.locals(group=Py_ssize_t, index=Py_ssize_t, op=Py_ssize_t)
    cdef void refresh(
        self, Step every, int64_t groups, bint sums, int64_t[::1] flags, int64_t wanted
    ) noexcept

    @cython.locals(op=Py_ssize_t, kind=int64_t, row=Py_ssize_t, rank=Py_ssize_t)
    cpdef void refresh_all(self, Step every, int64_t groups) noexcept

    @cython.locals(
        kind=int64_t, row=Py_ssize_t, seconds=double, known=double, everyone=bint,
        busy=Py_ssize_t, index=Py_ssize_t, rank=Py_ssize_t,
    )
    cdef void _refresh(self, Step step, Py_ssize_t op, bint sums) noexcept

    @cython.locals(launched=Py_ssize_t, first=Py_ssize_t, amount=double)
    cdef double _duration(self, Step step, Py_ssize_t op, Py_ssize_t rank) noexcept

    @cython.locals(count=Py_ssize_t, part=Py_ssize_t, first=Py_ssize_t)
    cdef Py_ssize_t _num_busy(self, Step step, Py_ssize_t op, Py_ssize_t rank) noexcept

    @cython.locals(total=double, term=Py_ssize_t, column=Py_ssize_t, value=double)
    cdef double amount(self, Step step, Py_ssize_t op, Py_ssize_t rank) noexcept

    @cython.locals(
        sent=Py_ssize_t, known=Py_ssize_t, joined=Py_ssize_t, size=double, start=Py_ssize_t, number=Py_ssize_t,
        everyone=bint, count=Py_ssize_t, index=Py_ssize_t, rank=Py_ssize_t, largest=double,
        lost=bint, earlier=double, before=double,
    )
    cdef void _exchange(self, Step step, Py_ssize_t op, bint sums) noexcept

    @cython.locals(largest=double, rank=Py_ssize_t)
    cdef double _largest(self, Py_ssize_t row, Py_ssize_t first, Py_ssize_t count) noexcept

    @cython.locals(row=Py_ssize_t, known=Py_ssize_t, seconds=double, alike=bint, rank=Py_ssize_t)
    cdef void _take(self, Step step, Py_ssize_t op, Py_ssize_t start, double size) noexcept
