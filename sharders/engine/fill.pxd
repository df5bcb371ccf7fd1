cimport cython
from libc.stdint cimport int64_t

from sharders.engine.kernel_ranks cimport KernelRanks
from sharders.engine.rank_scores cimport RankScores
from sharders.engine.search_state cimport SearchState
from sharders.engine.tables cimport Choices, Tables

cdef int64_t DATA_PARALLEL, TABLE_WISE, REPLICATED, WHOLE, SMALL, LARGE, LAST
cdef int64_t EVERYWHERE, FIXED, ON_NODES
cdef double inf

@cython.final
cdef class Rule:
    cdef readonly double split_above, replicate_below, memory, capacity
    cdef readonly bint apart
    cdef readonly double[::1] weights

@cython.final
cdef class Greedy:
    cdef readonly SearchState search
    cdef readonly Py_ssize_t num_ranks
    cdef readonly bint overfills
    cdef readonly RankScores scores
    cdef readonly KernelRanks kernel_ranks
    cdef readonly double[::1] key
    cdef readonly int64_t[::1] order, preferred, refused, taken

    @cython.locals(
        tables=Tables, balanced=double, table=Py_ssize_t, by_size=Py_ssize_t, option=Py_ssize_t,
        size=double, spread=int64_t, is_preferred=bint,
    )
    cpdef bint fill(self, Rule rule, bint may_overfill) noexcept
    @cython.locals(
        search=SearchState, tables=Tables, rank=Py_ssize_t, index=Py_ssize_t, table=Py_ssize_t,
        placed=bint, option=Py_ssize_t, first=Py_ssize_t, place=Py_ssize_t,
    )
    cdef bint _place_all(self, Rule rule, double balanced, bint may_overfill) noexcept
    @cython.locals(tables=Tables, extra=double)
    cdef double _total(self, Rule rule, Py_ssize_t option) noexcept
    @cython.locals(tables=Tables, extra=double)
    cdef double _load(self, Rule rule, Py_ssize_t option) noexcept
    @cython.locals(tables=Tables)
    cdef double _bytes(self, Py_ssize_t option) noexcept
    @cython.locals(
        tables=Tables, best=Py_ssize_t, known=bint, least=double, option=Py_ssize_t, whole=bint,
        total=double, first=Py_ssize_t, place=Py_ssize_t,
    )
    cdef Py_ssize_t _whole(self, Rule rule, Py_ssize_t table) noexcept
    @cython.locals(
        tables=Tables, first=Py_ssize_t, last=Py_ssize_t, whole=Py_ssize_t, limit=double,
        replica=Py_ssize_t, some_small=bint, option=Py_ssize_t, share=double, cheap=bint,
        best=Py_ssize_t, best_place=int64_t, best_key=double, key=double, load=double,
        place=int64_t, index=Py_ssize_t, preferred=int64_t,
    )
    cdef Py_ssize_t _next(self, Rule rule, Py_ssize_t table, double balanced) noexcept
    @cython.locals(
        tables=Tables, best=Py_ssize_t, least=double, first=Py_ssize_t, place=Py_ssize_t,
        option=Py_ssize_t, size=double,
    )
    cdef Py_ssize_t _finest(self, Py_ssize_t table) noexcept
    @cython.locals(search=SearchState, tables=Tables, choices=Choices, shard=Py_ssize_t)
    cdef bint _put(self, Py_ssize_t table, Py_ssize_t option, double load) noexcept
    @cython.locals(
        search=SearchState, tables=Tables, choices=Choices, local=Py_ssize_t, blocks=Py_ssize_t,
        nodes=bint, one_node=bint, node=Py_ssize_t, found=Py_ssize_t, best=Py_ssize_t,
        least=double, number=Py_ssize_t, rank=Py_ssize_t, added=double, block=Py_ssize_t,
    )
    cdef bint _find(self, Py_ssize_t table, Py_ssize_t option) noexcept
    @cython.locals(
        search=SearchState, total=double, fullest=double, rank=Py_ssize_t, free=double,
    )
    cdef double _added(self, Py_ssize_t first, Py_ssize_t count) noexcept
    @cython.locals(
        local=Py_ssize_t, best=Py_ssize_t, least=double, node=Py_ssize_t, roomy=Py_ssize_t,
        total=double, rank=Py_ssize_t, added=double,
    )
    cdef Py_ssize_t _roomy_node(self, Py_ssize_t blocks) noexcept
    @cython.locals(count=Py_ssize_t, start=Py_ssize_t, last=Py_ssize_t)
    cdef void _sort(self) noexcept
    @cython.locals(at=Py_ssize_t, child=Py_ssize_t)
    cdef void _sift(self, Py_ssize_t start, Py_ssize_t count) noexcept
    @cython.locals(first=Py_ssize_t, second=Py_ssize_t, equal=bint)
    cdef bint _is_before(self, Py_ssize_t place, Py_ssize_t other) noexcept
