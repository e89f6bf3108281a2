"""clonos-py: a stream processor with exactly-once local recovery by columnar causal logging."""
