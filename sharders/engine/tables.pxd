cimport cython
from libc.stdint cimport int32_t, int64_t

@cython.final
cdef class Tables:
    cdef readonly Py_ssize_t num_tables
    cdef readonly int64_t[::1] options, offered, num_offered
    cdef readonly int32_t[::1] group, kernel, kind, spread, blocks, one_node, at
    cdef readonly int32_t[::1] first, rows
    cdef readonly double[::1] table_columns, replicated, cost, price, shard_cost
    cdef readonly double[:, ::1] most, traffic, features, held

    @cython.locals(table=Py_ssize_t, first=int64_t, last=int64_t, count=int64_t, option=int64_t)
    cpdef void offer(self, int64_t types) noexcept
    cdef Py_ssize_t num_shards(self, Py_ssize_t option) noexcept

cdef class Choices:
    cdef readonly int64_t[::1] option
    cdef readonly int32_t[:, ::1] ranks

    @cython.locals(block=Py_ssize_t)
    cdef void copy_row(self, Py_ssize_t table, Choices target, Py_ssize_t target_row) noexcept

@cython.final
cdef class Move(Choices):
    cdef public Py_ssize_t length
    cdef readonly int64_t[::1] table

    @cython.locals(row=Py_ssize_t)
    cdef bint has(self, Py_ssize_t table) noexcept

    @cython.locals(row=Py_ssize_t, block=Py_ssize_t)
    cdef Py_ssize_t add(self, Choices choices, Py_ssize_t table, Py_ssize_t option) noexcept
