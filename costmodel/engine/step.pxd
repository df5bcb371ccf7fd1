cimport cython
from libc.stdint cimport int64_t

from costmodel.kernels.times cimport ExchangeTimes

cdef extern from *:
    """
    #if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__)
    #define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define VECTORISED
    #endif
    #define vectorised_void VECTORISED void
    #define vectorised_double VECTORISED double
    """
    # the result of functions that are compiled for several processors, chosen when they are loaded
    ctypedef void vectorised_void
    ctypedef double vectorised_double

cdef int64_t ALONE, CONSTANT, CROSS_NODE, INTRA_NODE, ISSUE, NUM_STEPS, WORLD

@cython.final
cdef class Step:
    cdef readonly Py_ssize_t num_ops
    cdef readonly int64_t[::1] kind, group, launched, same, rows, whole, touched_by
    cdef readonly int64_t[::1] starts, sources, terms, features, knots, finals, like
    cdef readonly int64_t[::1] least, parts, kernels
    cdef readonly double[::1] seconds, lags, weights, constants
    cdef readonly ExchangeTimes exchanges

@cython.final
cdef class StepClock:
    cdef readonly double[:, ::1] numbers, ends
    cdef readonly Py_ssize_t busy, local_ranks, num_ranks
    cdef readonly int64_t[::1] together, others
    cdef readonly double[::1] latest, waits

    @cython.locals(
        number=Py_ssize_t, op=Py_ssize_t, now=Py_ssize_t, before=Py_ssize_t,
        last=double, before_last=double, skipped_at=Py_ssize_t,
    )
    cpdef double step_time(self, Step step) noexcept

    @cython.locals(
        length=Py_ssize_t, count=double, late=Py_ssize_t, early=Py_ssize_t, rank=Py_ssize_t,
        earlier=double,
    )
    cdef void _skip_batches(self, Step step, Py_ssize_t now) noexcept

    @cython.locals(
        base=double, row=Py_ssize_t, end=Py_ssize_t, group=int64_t, count=Py_ssize_t,
        entry=Py_ssize_t, source=Py_ssize_t, lag=double, same=bint, ranks_busy=double,
        seconds=double, index=Py_ssize_t, rank=Py_ssize_t,
    )
    cdef void _time_op(
        self, Step step, Py_ssize_t op, Py_ssize_t now, Py_ssize_t before, bint is_first
    ) noexcept

    @cython.locals(rank=Py_ssize_t)
    cdef vectorised_void _add(self, Py_ssize_t end, Py_ssize_t row, double seconds) noexcept

    @cython.locals(first=Py_ssize_t, lag=double, rank=Py_ssize_t, start=double)
    cdef vectorised_void _after_one(self, Py_ssize_t end, double base, Py_ssize_t row) noexcept

    @cython.locals(
        first=Py_ssize_t, lag=double, second=Py_ssize_t, wait=double, rank=Py_ssize_t,
        start=double, other=double,
    )
    cdef vectorised_void _after_two(self, Py_ssize_t end, double base, Py_ssize_t row) noexcept

    @cython.locals(
        pair=Py_ssize_t, index=Py_ssize_t, first=Py_ssize_t, lag=double, second=Py_ssize_t,
        wait=double, rank=Py_ssize_t, start=double, other=double, known=double,
    )
    cdef vectorised_void _start(self, Py_ssize_t end, double base, Py_ssize_t count) noexcept

    @cython.locals(
        num_nodes=Py_ssize_t, node=Py_ssize_t, first=Py_ssize_t, rank=Py_ssize_t,
        latest=double, end=double,
    )
    cdef vectorised_void _join(self, Py_ssize_t op, int64_t group) noexcept

    @cython.locals(rank=Py_ssize_t, end=double, latest=double)
    cdef vectorised_double _latest_end(self, Py_ssize_t op) noexcept

    @cython.locals(index=Py_ssize_t, end=Py_ssize_t, last=double)
    cdef double _end_of_step(self, Step step, Py_ssize_t now) noexcept
