cimport cython
from libc.stdint cimport int64_t

from sharders.engine.tables cimport Choices, Tables

cdef int64_t NONE, ON_RANKS

@cython.final
cdef class RankBlocks:
    cdef readonly Tables tables
    cdef readonly Choices choices
    cdef readonly Py_ssize_t widest
    cdef readonly int64_t[::1] first, after, before

    @cython.locals(rank=Py_ssize_t, table=Py_ssize_t)
    cpdef void rebuild(self) noexcept
    @cython.locals(option=Py_ssize_t, block=Py_ssize_t)
    cpdef void change(self, Py_ssize_t table, Choices past, Py_ssize_t row) noexcept
    @cython.locals(
        option=Py_ssize_t, block=Py_ssize_t, entry=Py_ssize_t, rank=Py_ssize_t, other=Py_ssize_t
    )
    cdef void _add(self, Py_ssize_t table) noexcept
    @cython.locals(after=Py_ssize_t, before=Py_ssize_t)
    cdef void _remove(self, Py_ssize_t entry, Py_ssize_t rank) noexcept
