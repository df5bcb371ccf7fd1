cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class PathsToLast:
    cdef readonly int64_t[::1] places, first, waits, came_from
    cdef readonly double[::1] ends

    @cython.locals(
        number=Py_ssize_t, at=Py_ssize_t, each=int64_t, latest=int64_t, end=double,
    )
    cpdef double longest(self, double[::1] times)

    @cython.locals(at=int64_t)
    cpdef list path(self)
