"""``python -m bench.five_models``."""

from bench.five_models.showing import main

main()
