"""The step of a plan, timed fast: what every search evaluates, compiled when the package is built.

The modules are ordinary Python; the ``.pxd`` file beside each gives Cython the C types. Without a
C compiler they run interpreted, a thousand times as slowly and with the same results.
"""
