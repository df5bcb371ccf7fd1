cimport cython
cimport libc.math as math

cdef double NO_BYTES, WEIGHT_GRADIENT_RATIO, SORT_BLOCK_KEYS, LINEAR_BAG_RATIO
cdef Py_ssize_t FORWARD_HBM, FORWARD_L2, FORWARD_UVM, BACKWARD_HBM, BACKWARD_L2, BACKWARD_UVM
cdef Py_ssize_t LOOKUPS, CHAIN, ROWS, KEYS, UPDATES, BAGS, TURNS, WIDEST
cdef Py_ssize_t ALPHA, OFFSET, SCALE, RATIO, SLOPE, ACROSS, OPTIONAL

@cython.final
cdef class LookupRates:
    cdef readonly double latency, lookup_bandwidth, update_bandwidth, gather_bandwidth, sort_rate
    cdef readonly double sort_latency, forward_latency
    cdef readonly double backward_latency, gradient_time
    cdef readonly double uvm_bandwidth, overlap, lookup_time, row_read_time, row_update_time
    cdef readonly double bag_time, forward_turn_time, backward_turn_time
    cdef readonly double[:, ::1] forward_knots, backward_knots

cdef double forward_seconds(double[:, ::1] traffic, Py_ssize_t row, Py_ssize_t first, LookupRates rates) noexcept
cdef double gather_seconds(double[:, ::1] traffic, Py_ssize_t row, Py_ssize_t first, LookupRates rates) noexcept
@cython.locals(widest=double)
cpdef double idle_turns(double[:, ::1] traffic, Py_ssize_t row, Py_ssize_t first) noexcept

@cython.locals(count=Py_ssize_t, after=Py_ssize_t)
cdef double corrected_seconds(double seconds, double[:, ::1] knots) noexcept

cdef double backward_seconds(double[:, ::1] traffic, Py_ssize_t row, Py_ssize_t first, LookupRates rates) noexcept
cdef double weight_gradient_seconds(double[:, ::1] traffic, Py_ssize_t row, Py_ssize_t first, LookupRates rates) noexcept

@cython.locals(after=Py_ssize_t)
cdef double curve_seconds(
    double size, double[::1] log_bytes, double[::1] log_seconds, Py_ssize_t first, Py_ssize_t last
) noexcept

@cython.locals(local=double, scaled=double)
cdef double exchange_seconds(
    double size, double[:, ::1] forms, Py_ssize_t row,
    double[::1] log_bytes, double[::1] log_seconds, Py_ssize_t first, Py_ssize_t last
) noexcept

cdef double stream_seconds(
    double num_bytes, double latency, double bandwidth, double[:, ::1] knots
) noexcept

@cython.locals(times=double[::1], row=Py_ssize_t, count=Py_ssize_t)
cpdef lookup_times(double[:, ::1] traffic, LookupRates rates, bint backward)

@cython.locals(times=double[::1], row=Py_ssize_t, count=Py_ssize_t)
cpdef weight_gradient_times(double[:, ::1] traffic, LookupRates rates)

@cython.locals(times=double[::1], index=Py_ssize_t, count=Py_ssize_t, knots=Py_ssize_t)
cpdef exchange_times(
    double[::1] sizes, double[:, ::1] forms, double[::1] log_bytes, double[::1] log_seconds
)

@cython.locals(times=double[::1], index=Py_ssize_t, count=Py_ssize_t)
cpdef stream_times(
    double[::1] sizes, double latency, double bandwidth, double[:, ::1] knots
)
