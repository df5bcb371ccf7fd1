cimport cython
from libc.stdint cimport int64_t

from costmodel.engine.state cimport PlanState
from sharders.engine.tables cimport Choices, Tables

cdef Py_ssize_t NUM_FEATURES, FEATURES, IDS, NUM_SUMS, LOOKUPS, NUM_TRAFFIC, BALANCE_ROOTS
cdef Py_ssize_t CHAIN, WIDEST, BAG, WIDTH
cdef Py_ssize_t TABLE_COLUMNS, SENT_IDS, SENT_FEATURES, PRESENT, NUM_TABLES
cdef Py_ssize_t PARAMETERS, NUM_KERNEL_SUMS
cdef int64_t EVERYWHERE, FIXED, ON_RANKS
cdef double EMPTY, SOME_LEFT, ROUNDED, CANCELLED

@cython.final
cdef class RankLoads:
    cdef readonly PlanState plan
    cdef readonly Tables tables
    cdef readonly Choices choices
    cdef readonly Py_ssize_t load_row, launches_row, power_row, exchanged_row, free_row, host_row
    cdef readonly Py_ssize_t counts_row, excess_row, end_row, num_groups, num_kernels
    cdef readonly double[::1] exchange_rates, launch_seconds
    cdef readonly double[::1] rooms
    cdef readonly int64_t[::1] kernel_changed
    cdef public double host_room

    @cython.locals(spread=int64_t, block=Py_ssize_t, node=Py_ssize_t)
    cdef inline Py_ssize_t rank_of(
        self, Py_ssize_t option, Choices choices, Py_ssize_t row, Py_ssize_t shard
    ) noexcept
    @cython.locals(
        first=Py_ssize_t, shard=Py_ssize_t, rank=Py_ssize_t, size=Py_ssize_t, left=double,
        free=double, node=Py_ssize_t,
    )
    cdef void hold(
        self, Py_ssize_t option, Choices choices, Py_ssize_t row, double sign
    ) noexcept
    cdef void _exceed(self, double more, double room) noexcept
    @cython.locals(shard=Py_ssize_t, rank=Py_ssize_t)
    cdef bint has_room(self, Py_ssize_t option, Choices choices, Py_ssize_t row) noexcept
    @cython.locals(rank=Py_ssize_t)
    cpdef bint fits(self) noexcept
    @cython.locals(
        ids=double, sent=double, traffic=Py_ssize_t, features=Py_ssize_t, noted=Py_ssize_t,
        first=Py_ssize_t, shard=Py_ssize_t, rank=Py_ssize_t, size=Py_ssize_t, whole=Py_ssize_t,
        stays=bint,
    )
    cdef void change(
        self, Py_ssize_t option, Choices choices, Py_ssize_t row,
        Choices others, Py_ssize_t other_row, double sign
    ) noexcept
    cdef void _add(self, Py_ssize_t row, double amount) noexcept
    cdef Py_ssize_t _traffic(self, Py_ssize_t kernel) noexcept
    @cython.locals(left=double, column=Py_ssize_t, longest=double, widest=double)
    cdef void _look_up_more(
        self, Py_ssize_t traffic, Py_ssize_t rank, Py_ssize_t size, double sign
    ) noexcept
    @cython.locals(most=double)
    cdef inline double _most_with(
        self, Py_ssize_t rank, Py_ssize_t column, double of_shard, double sign
    ) noexcept
    @cython.locals(
        left=double, is_left=bint, feature=Py_ssize_t, column=Py_ssize_t, before=double,
        rate=double, amount=double, more=double, change=double,
    )
    cdef void _send_more(
        self, Py_ssize_t features, Py_ssize_t rank, Py_ssize_t size, double sign
    ) noexcept
    @cython.locals(noted=Py_ssize_t, feature=Py_ssize_t, kept=Py_ssize_t)
    cdef Py_ssize_t _note_powers(self, Py_ssize_t features) noexcept
    @cython.locals(column=Py_ssize_t, kept=Py_ssize_t)
    cdef void _check_powers(self, Py_ssize_t features, Py_ssize_t noted) noexcept
    @cython.locals(total=double, rank=Py_ssize_t)
    cdef double _exchanged(self, Py_ssize_t feature) noexcept
    @cython.locals(
        traffic=Py_ssize_t, most=double, bound=double, local=Py_ssize_t, table=Py_ssize_t,
        option=Py_ssize_t, first=Py_ssize_t, spread=int64_t, shard=Py_ssize_t, width=Py_ssize_t,
        block=Py_ssize_t,
    )
    cdef void _find_most(
        self, Py_ssize_t kernel, Py_ssize_t rank, Py_ssize_t number, Py_ssize_t column
    ) noexcept
    cdef double _of_shard(self, Py_ssize_t shard, Py_ssize_t column) noexcept
    @cython.locals(
        group=Py_ssize_t, whole=Py_ssize_t, counts=Py_ssize_t, present=double, row=Py_ssize_t,
        of_kernels=Py_ssize_t, parameters=Py_ssize_t,
    )
    cdef void count(self, Py_ssize_t table, Py_ssize_t option, double sign) noexcept
    cdef Py_ssize_t num_in(self, Py_ssize_t group) noexcept
    @cython.locals(bits=int64_t, group=Py_ssize_t)
    cpdef int64_t present_groups(self) noexcept
    @cython.locals(total=double, index=Py_ssize_t, kernel=Py_ssize_t, rank=Py_ssize_t)
    cdef void look_up(self) noexcept
    cdef double work(self, Py_ssize_t rank) noexcept
    @cython.locals(
        plan=PlanState, first=Py_ssize_t, at=Py_ssize_t, back=Py_ssize_t, index=Py_ssize_t,
        rank=Py_ssize_t, forward=double, backward=double, more=double, launches=double,
        before=double,
    )
    cdef void _look_up(self, Py_ssize_t kernel) noexcept
    @cython.locals(most=double, longest=double)
    cdef bint _is_hidden(self, Py_ssize_t rank, Py_ssize_t first, double seconds) noexcept
    @cython.locals(
        plan=PlanState, row=Py_ssize_t, rank=Py_ssize_t, column=Py_ssize_t, table=Py_ssize_t,
        group=Py_ssize_t, kernel=Py_ssize_t,
    )
    cdef void rebuild(self) noexcept
    @cython.locals(
        plan=PlanState, tables=Tables, traffic=Py_ssize_t, features=Py_ssize_t, first=Py_ssize_t,
        shard=Py_ssize_t, rank=Py_ssize_t, size=Py_ssize_t, longest=double, column=Py_ssize_t,
        widest=double,
    )
    cdef void _load_all(self, Py_ssize_t table, Py_ssize_t option) noexcept
    @cython.locals(
        plan=PlanState, ids=double, sent=double, features=Py_ssize_t, whole=Py_ssize_t,
        rank=Py_ssize_t, feature=Py_ssize_t,
    )
    cdef void _sum_up(self, Py_ssize_t group) noexcept

cdef double power(double value) noexcept
