"""Benchmarks: Nexmark, microbenchmarks, and the scripts that print the figures of the documentation."""

if __name__ == "bench":
    raise ImportError("import clonos_py.bench: the folder bench at the top is reached through the package")
