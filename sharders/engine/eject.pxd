cimport cython
from libc.stdint cimport int64_t

from sharders.engine.moves cimport MoveProposer, RandomNumbers
from sharders.engine.rank_blocks cimport RankBlocks
from sharders.engine.search_state cimport SearchState
from sharders.engine.tables cimport Choices, Move, Tables

cdef double inf
cdef Py_ssize_t EJECT_TRIES, EJECT_PLACES

@cython.final
cdef class Ejector:
    cdef readonly SearchState search
    cdef readonly RandomNumbers rng
    cdef readonly RankBlocks blocks
    cdef readonly Py_ssize_t fullest, found_block
    cdef readonly double lack, found_bytes, left

    @cython.locals(search=SearchState, row=Py_ssize_t, other=Py_ssize_t)
    cpdef void find_fullest(self) noexcept
    @cython.locals(
        search=SearchState, tables=Tables, choices=Choices, table=Py_ssize_t, option=Py_ssize_t,
        local=Py_ssize_t, number=Py_ssize_t, place=Py_ssize_t,
    )
    cpdef bint eject(self, Move move) noexcept
    @cython.locals(
        search=SearchState, tables=Tables, found=Py_ssize_t, entry=int64_t, tries=Py_ssize_t,
        table=Py_ssize_t, block=Py_ssize_t, row=Py_ssize_t, size=double,
    )
    cdef Py_ssize_t _smallest(self, Move move) noexcept
    @cython.locals(search=SearchState, blocks=Py_ssize_t, place=Py_ssize_t)
    cdef Py_ssize_t _place(self, Py_ssize_t moved, bint origin) noexcept
