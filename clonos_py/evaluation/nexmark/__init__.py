"""The Nexmark benchmark: events of an auction site, the queries, and an independent computation of their answers."""
