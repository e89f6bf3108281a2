"""The dimensions in which the runs of CheckMate's evaluation differ: query, recovery, skew, partitioning, load."""

from __future__ import annotations

CYCLE = "reachability"
KEYED = ("q3", "q8", "q12")
"""Queries that skew affects. Query 1 has no shuffle, and the paper runs the cyclic query without skew, too."""
QUERIES = ("q1", *KEYED, CYCLE)
CAUSAL, ROLLBACK, NONE = "causal", "rollback", "none"
RECOVERIES = (CAUSAL, ROLLBACK, NONE)
BY_HASH, BY_REMAINDER = "hash", "mod"
KEYS = (BY_HASH, BY_REMAINDER)
"""How rows are partitioned: by the engine's hash of the key, or by key modulo parallelism, as the paper does."""
LOAD, LOADS_SKEWED = 80, (50, 80)
"""Percent of the maximum sustainable throughput."""
