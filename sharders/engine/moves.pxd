cimport cython
from libc.stdint cimport int64_t, uint64_t

from costmodel.engine.cycles cimport Cycle
from costmodel.engine.step cimport Step
from sharders.engine.search_state cimport SearchState
from sharders.engine.tables cimport Choices, Move, Tables

cdef double NO_EXCESS, EXCESS_SHARE, CRITICAL_SHARE, KEEP_SHARE, SWAP_SHARE, OPTION_SHARE
cdef double SUITED_SHARE, ANY_GROUP_SHARE, KERNEL_SHARE
cdef Py_ssize_t MAX_TOGETHER, MAX_COSTLIEST, SUITED_TRIES, OPTION_TRIES, MANY_SHARDS
cdef Py_ssize_t EAGERNESS, SWAP_TRIES, PRICED_TRIES
cdef int64_t ALL_GROUPS, EXCHANGE, ONLY, ON_NODES
cdef Py_ssize_t NUM_TYPES
cdef uint64_t GAMMA, FIRST, SECOND, WORD

@cython.final
cdef class RandomNumbers:
    cdef uint64_t state
    cdef void begin(self, uint64_t seed) noexcept
    @cython.locals(mixed=uint64_t)
    cpdef double uniform(self) noexcept
    cpdef Py_ssize_t below(self, Py_ssize_t count) noexcept

@cython.final
cdef class MoveProposer:
    cdef readonly SearchState search
    cdef readonly double[::1] width
    cdef readonly RandomNumbers rng
    cdef readonly double priced_share, together_share, finer_share
    cdef readonly Py_ssize_t num_slowest, bottleneck_row
    cdef readonly int64_t bottleneck_groups
    cdef readonly int64_t[::1] order, slowest, taken, op_of

    @cython.locals(
        search=SearchState, row=Py_ssize_t, groups=int64_t, place=Py_ssize_t, rank=int64_t,
        before=Py_ssize_t, sign=double, slowest=Py_ssize_t, table=Py_ssize_t, group=int64_t,
    )
    cdef void refresh(self) noexcept
    @cython.locals(
        search=SearchState, total=double, every=Step, cycle=Cycle, index=Py_ssize_t,
        row=Py_ssize_t, op=Py_ssize_t, is_exchange=bint, seconds=double,
    )
    cdef void _find_bottleneck(self) noexcept
    @cython.locals(
        last=Py_ssize_t, first=Py_ssize_t, slowest=int64_t, seconds=double, place=Py_ssize_t,
    )
    cdef int64_t _drawn_slowest(self, Py_ssize_t row) noexcept
    @cython.locals(search=SearchState, option=Py_ssize_t, local=Py_ssize_t, nodes=bint)
    cdef Py_ssize_t _block_on(self, Py_ssize_t table, Py_ssize_t rank) noexcept
    @cython.locals(
        search=SearchState, block=Py_ssize_t, table=Py_ssize_t, blocks=Py_ssize_t, swaps=double,
        options=double, kind=double, option=Py_ssize_t,
    )
    cdef void draw(self, Move move, bint placing) noexcept
    @cython.locals(
        search=SearchState, tables=Tables, choices=Choices, first=Py_ssize_t, here=Py_ssize_t,
        other=Py_ssize_t, second=Py_ssize_t, alike=bint, other_block=Py_ssize_t, there=Py_ssize_t,
    )
    cdef void _swap(self, Move move, Py_ssize_t table, Py_ssize_t block) noexcept
    @cython.locals(
        search=SearchState, tables=Tables, choices=Choices, option=Py_ssize_t, rank=Py_ssize_t,
        local=Py_ssize_t, nodes=bint, other=Py_ssize_t, at=Py_ssize_t, row=Py_ssize_t,
    )
    cdef void _other_rank(self, Move move, Py_ssize_t table, Py_ssize_t block) noexcept
    @cython.locals(option=Py_ssize_t)
    cdef bint _other_option(self, Move move, Py_ssize_t table, int64_t but, int64_t only) noexcept
    @cython.locals(
        tables=Tables, first=Py_ssize_t, count=Py_ssize_t, chosen=Py_ssize_t, wanted=Py_ssize_t,
        option=Py_ssize_t, priced=bint,
    )
    cdef Py_ssize_t _drawn_option(self, Py_ssize_t table, int64_t but, int64_t only) noexcept
    @cython.locals(tables=Tables, present=Py_ssize_t, shards=Py_ssize_t)
    cdef bint _is_tried(self, Py_ssize_t table, Py_ssize_t option) noexcept
    @cython.locals(
        tables=Tables, choices=Choices, row=Py_ssize_t, same=bint, kept=Py_ssize_t, block=Py_ssize_t
    )
    cdef bint _take_option(self, Move move, Py_ssize_t table, Py_ssize_t chosen) noexcept
    @cython.locals(
        tables=Tables, choices=Choices, present=Py_ssize_t, local=Py_ssize_t, count=Py_ssize_t,
        block=Py_ssize_t,
    )
    cdef Py_ssize_t _keepable(self, Py_ssize_t table, Py_ssize_t option) noexcept
    @cython.locals(
        tables=Tables, local=Py_ssize_t, blocks=Py_ssize_t, num_ranks=Py_ssize_t, nodes=bint,
        one_node=bint, node=Py_ssize_t, place=Py_ssize_t, block=Py_ssize_t, at=Py_ssize_t,
        step=Py_ssize_t, rank=Py_ssize_t,
    )
    cdef void _place(self, Py_ssize_t option, Move move, Py_ssize_t row, Py_ssize_t kept) noexcept
    @cython.locals(drawn=double, power=double)
    cdef Py_ssize_t _light_place(self) noexcept
    cdef Py_ssize_t light_rank(self) noexcept
    @cython.locals(
        search=SearchState, tables=Tables, choices=Choices, group=int64_t, kernel=Py_ssize_t,
        count=Py_ssize_t, table=Py_ssize_t, option=Py_ssize_t,
    )
    cdef void _leave_group(self, Move move) noexcept
    @cython.locals(tables=Tables, choices=Choices, table=Py_ssize_t, option=Py_ssize_t)
    cdef Py_ssize_t _kernel_of(self, int64_t group, Py_ssize_t place) noexcept
    @cython.locals(joined=int64_t, suited=bint, table=Py_ssize_t)
    cdef void _join_type(self, Move move) noexcept
    @cython.locals(
        tables=Tables, choices=Choices, present=Py_ssize_t, group=int64_t, limit=double,
        table=Py_ssize_t, finer=Py_ssize_t,
    )
    cdef void _split_finer(self, Move move) noexcept
    @cython.locals(
        tables=Tables, found=Py_ssize_t, most=double, first=Py_ssize_t, place=Py_ssize_t,
        option=Py_ssize_t, width=double,
    )
    cdef Py_ssize_t _widest(self, Py_ssize_t table, int64_t kind, double limit) noexcept
    @cython.locals(
        tables=Tables, choices=Choices, costliest=Py_ssize_t, most=double, index=Py_ssize_t,
        table=Py_ssize_t, cost=double,
    )
    cdef Py_ssize_t _costliest(self, Move move) noexcept
    @cython.locals(
        tables=Tables, choices=Choices, found=Py_ssize_t, most=double, table=Py_ssize_t,
        present=Py_ssize_t, first=Py_ssize_t, index=Py_ssize_t, option=Py_ssize_t, gain=double,
    )
    cdef Py_ssize_t _suited(self, Move move, int64_t kind) noexcept
