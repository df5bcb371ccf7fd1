cimport cython
from libc.stdint cimport int64_t

from sharders.engine.search_state cimport SearchState
from sharders.engine.tables cimport Tables

cdef int64_t EVERYWHERE, FIXED, ON_NODES

@cython.final
cdef class KernelRanks:
    cdef readonly SearchState search
    cdef readonly Py_ssize_t num_kernels, num_ranks
    cdef readonly int64_t[:, ::1] is_allowed, is_given
    cdef readonly double[::1] load, busy
    cdef readonly int64_t[::1] width, unit, least, most, count, num_allowed

    @cython.locals(kernel=Py_ssize_t, rank=Py_ssize_t)
    cdef void clear(self) noexcept
    @cython.locals(
        tables=Tables, local=Py_ssize_t, spread=int64_t, kernel=Py_ssize_t, shards=int64_t,
        least=int64_t,
    )
    cdef void expect(self, Py_ssize_t option, double load) noexcept
    @cython.locals(
        tables=Tables, kernel=Py_ssize_t, first=Py_ssize_t, shard=Py_ssize_t, rank=Py_ssize_t,
    )
    cdef void _give(self, Py_ssize_t option) noexcept
    @cython.locals(most_kernels=int64_t)
    cdef bint divide(self) noexcept
    @cython.locals(
        left=int64_t, rank=Py_ssize_t, kernel=Py_ssize_t, given=int64_t, least=int64_t,
    )
    cdef bint _divide(self, int64_t most_kernels) noexcept
    @cython.locals(given=int64_t, is_expected=bint, rank=Py_ssize_t)
    cdef int64_t _allow_given(self, Py_ssize_t kernel) noexcept
    @cython.locals(best=Py_ssize_t, kernel=Py_ssize_t, step=int64_t, most=int64_t, may=bint)
    cdef void _share_out(self, int64_t left) noexcept
    cdef int64_t _step(self, Py_ssize_t kernel) noexcept
    cdef bint _is_fuller(self, Py_ssize_t kernel, Py_ssize_t other) noexcept
    @cython.locals(best=Py_ssize_t, kernel=Py_ssize_t, larger=bint, same=bint)
    cdef Py_ssize_t _next(self) noexcept
    @cython.locals(load=double, count=int64_t, allowed=int64_t, rank=Py_ssize_t, more=int64_t)
    cdef bint _allow_all(self, Py_ssize_t kernel, int64_t most_kernels) noexcept
    @cython.locals(
        width=Py_ssize_t, best=Py_ssize_t, least=double, first=Py_ssize_t, total=double,
        possible=int64_t, more=int64_t, rank=Py_ssize_t, is_new=bint, is_enough=bint,
        allowed=int64_t,
    )
    cdef int64_t _allow(
        self, Py_ssize_t kernel, int64_t most_kernels, int64_t count, double load
    ) noexcept
