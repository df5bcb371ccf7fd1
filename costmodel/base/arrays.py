"""What numpy's arrays are called by what their entries are."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Places = NDArray[np.intp]
"""Indices into other arrays, or into sequences."""
Mask = NDArray[np.bool_]
