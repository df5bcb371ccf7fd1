cimport cython

from libc.stdint cimport int64_t

from sharders.engine.rank_loads cimport RankLoads
from sharders.engine.search_state cimport SearchState
from sharders.engine.tables cimport Tables

cdef double STEEPNESS, MOST_SHARE, MOST_SCORE, NO_TIME

cdef double _factor(double share) noexcept

@cython.final
cdef class RankScores:
    cdef readonly SearchState search
    cdef readonly Py_ssize_t num_ranks, num_groups, group, kernel
    cdef readonly double even_load, capacity, bytes, sent_time
    cdef readonly double load_factor, memory_factor, sent_factor, launch_factor
    cdef readonly double[::1] load_score, memory_score, sent, even_sent, largest
    cdef readonly double[:, ::1] sent_score
    cdef readonly int64_t[::1] num_kernels
    cdef readonly int64_t[:, ::1] is_busy

    @cython.locals(group=Py_ssize_t)
    cdef void clear(self, double capacity) noexcept
    @cython.locals(tables=Tables, group=Py_ssize_t, shards=Py_ssize_t)
    cdef void expect(self, Py_ssize_t option, double load) noexcept
    @cython.locals(loads=RankLoads, rank=Py_ssize_t, group=Py_ssize_t, kernel=Py_ssize_t)
    cdef void begin(self) noexcept
    cdef double share(self, double load, double size) noexcept
    @cython.locals(launch=double)
    cdef void consider(self, Py_ssize_t option, double load, double size) noexcept
    @cython.locals(total=double, memory=double)
    cdef double added(self, Py_ssize_t rank) noexcept
    cdef double _load_factor(self, Py_ssize_t rank) noexcept
    @cython.locals(group=Py_ssize_t, load=double, memory=double, sent=double)
    cdef void take(self, Py_ssize_t rank) noexcept
