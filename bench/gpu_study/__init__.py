"""What a machine with a GPU is measured on in under an hour, and what the models say beforehand.

``python -m bench.gpu_study --device cuda --minutes 9 -o DIR``; see bench/README.md.
"""
