"""The Nexmark benchmark: events of an auction site, the queries, their runs and reports."""
