"""``python -m bench.dense_reading``."""

from bench.dense_reading.reading import main

main()
