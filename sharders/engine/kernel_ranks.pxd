cimport cython
from libc.stdint cimport int64_t

from sharders.engine.search_state cimport SearchState
from sharders.engine.tables cimport Tables

cdef int64_t EVERYWHERE, FIXED, ON_NODES

@cython.final
cdef class KernelRanks:
    cdef readonly SearchState search
    cdef readonly Py_ssize_t num_kernels, num_ranks
    cdef readonly int64_t[:, ::1] is_allowed
    cdef readonly double[::1] load, busy
    cdef readonly int64_t[::1] unit, least, most, count, num_allowed

    @cython.locals(kernel=Py_ssize_t, rank=Py_ssize_t)
    cdef void clear(self) noexcept
    @cython.locals(
        tables=Tables, local=Py_ssize_t, spread=int64_t, kernel=Py_ssize_t, shards=int64_t,
        least=int64_t,
    )
    cdef void expect(self, Py_ssize_t option, double load) noexcept
    @cython.locals(
        needed=int64_t, kernel=Py_ssize_t, rank=Py_ssize_t, most_kernels=int64_t, _=Py_ssize_t,
    )
    cdef bint divide(self) noexcept
    @cython.locals(best=Py_ssize_t, kernel=Py_ssize_t, more=int64_t)
    cdef void _share_out(self, int64_t left) noexcept
    cdef bint _is_fuller(self, Py_ssize_t kernel, Py_ssize_t other) noexcept
    @cython.locals(best=Py_ssize_t, kernel=Py_ssize_t, larger=bint, same=bint)
    cdef Py_ssize_t _next(self) noexcept
    @cython.locals(
        unit=Py_ssize_t, best=Py_ssize_t, least=double, first=Py_ssize_t, total=double,
        fullest=int64_t, rank=Py_ssize_t,
    )
    cdef bint _allow(self, Py_ssize_t kernel, int64_t most_kernels) noexcept
