cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class Contraction:
    cdef readonly double launch_delay
    cdef readonly int64_t[::1] resource, events, events_from, before, before_from
    cdef readonly int64_t[::1] launched_by, varies, stays, marked, final, last, first
    cdef readonly int64_t[::1] sources, seen, at
    cdef readonly double[::1] seconds, lags
    cdef readonly Py_ssize_t end

    @cython.locals(count=Py_ssize_t, resource=Py_ssize_t, op=Py_ssize_t, at=Py_ssize_t)
    cpdef void _run(self, int64_t[::1] there) except *

    @cython.locals(
        resource=Py_ssize_t, last=int64_t, at=Py_ssize_t, event=int64_t, source=int64_t,
    )
    cdef void _add(self, Py_ssize_t op) except *

    @cython.locals(at=Py_ssize_t)
    cdef void _wait_for(self, Py_ssize_t op, Py_ssize_t other, double lag) except *

    @cython.locals(place=Py_ssize_t, at=Py_ssize_t)
    cdef void _wait(self, Py_ssize_t op, int64_t source, double lag) except *

    @cython.locals(
        begin=Py_ssize_t, at=Py_ssize_t, source=int64_t, lag=double, other=Py_ssize_t,
        place=Py_ssize_t, kept=Py_ssize_t,
    )
    cdef void _prune(self, Py_ssize_t op) noexcept

    cdef Py_ssize_t _place(self, int64_t source) noexcept
