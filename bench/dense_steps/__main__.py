"""``python -m bench.dense_steps``."""

from bench.dense_steps.showing import main

main()
