cimport cython
cimport libc.math as math

cdef double NO_BYTES, WEIGHT_GRADIENT_RATIO, SORT_BLOCK_KEYS, LINEAR_BAG_RATIO
cdef Py_ssize_t FORWARD_HBM, FORWARD_L2, FORWARD_UVM, BACKWARD_HBM, BACKWARD_L2, BACKWARD_UVM
cdef Py_ssize_t LOOKUPS, CHAIN, ROWS, KEYS, UPDATES, BAGS, TURNS, WIDEST
cdef Py_ssize_t ALPHA, OFFSET, SCALE, RATIO, SLOPE, ACROSS, OPTIONAL

@cython.final
cdef class Correction:
    cdef readonly double[:, ::1] knots
    cdef readonly Py_ssize_t count

    @cython.locals(last=Py_ssize_t, after=Py_ssize_t, before=Py_ssize_t, along=double)
    cdef double corrected(self, double seconds) noexcept

@cython.final
cdef class LookupRates:
    cdef readonly double latency, lookup_bandwidth, update_bandwidth, gather_bandwidth, sort_rate
    cdef readonly double sort_latency, forward_latency
    cdef readonly double backward_latency, gradient_time
    cdef readonly double uvm_bandwidth, overlap, lookup_time, row_read_time, row_update_time
    cdef readonly double bag_time, forward_turn_time, backward_turn_time
    cdef readonly Correction forward_correction, backward_correction

@cython.final
cdef class LookupTimes:
    cdef readonly double[:, ::1] traffic
    cdef readonly LookupRates rates

    @cython.locals(rates=LookupRates)
    cdef double forward_seconds(self, Py_ssize_t row, Py_ssize_t first) noexcept
    @cython.locals(rates=LookupRates)
    cdef inline double _gather_seconds(self, Py_ssize_t row, Py_ssize_t first) noexcept
    @cython.locals(widest=double, lookups=double)
    cpdef double idle_turns(self, Py_ssize_t row, Py_ssize_t first) noexcept
    @cython.locals(rates=LookupRates)
    cdef double backward_seconds(self, Py_ssize_t row, Py_ssize_t first) noexcept
    cdef double weight_gradient_seconds(self, Py_ssize_t row, Py_ssize_t first) noexcept

@cython.final
cdef class StreamTimes:
    cdef readonly double latency, bandwidth
    cdef readonly Correction correction

    cdef double seconds(self, double num_bytes) noexcept

@cython.final
cdef class ExchangeTimes:
    cdef readonly double[:, ::1] forms
    cdef readonly double[::1] log_bytes, log_seconds

    @cython.locals(local=double, scaled=double)
    cdef double seconds(
        self, double size, Py_ssize_t row, Py_ssize_t first, Py_ssize_t last
    ) noexcept
    @cython.locals(after=Py_ssize_t, before=Py_ssize_t, rise=double)
    cdef double _curve_seconds(self, double size, Py_ssize_t first, Py_ssize_t last) noexcept

@cython.locals(times=double[::1], row=Py_ssize_t, count=Py_ssize_t, lookups=LookupTimes)
cpdef lookup_times(double[:, ::1] traffic, LookupRates rates, bint backward)

@cython.locals(times=double[::1], row=Py_ssize_t, count=Py_ssize_t, lookups=LookupTimes)
cpdef weight_gradient_times(double[:, ::1] traffic, LookupRates rates)

@cython.locals(
    times=double[::1], index=Py_ssize_t, count=Py_ssize_t, knots=Py_ssize_t, exchange=ExchangeTimes,
)
cpdef exchange_times(
    double[::1] sizes, double[:, ::1] forms, double[::1] log_bytes, double[::1] log_seconds
)

@cython.locals(times=double[::1], index=Py_ssize_t, count=Py_ssize_t, stream=StreamTimes)
cpdef stream_times(
    double[::1] sizes, double latency, double bandwidth, double[:, ::1] knots
)
