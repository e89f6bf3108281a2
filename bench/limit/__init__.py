"""Compares this engine with DuckDB over the same files, as an upper limit of what a batch engine does with them."""
