"""The Nexmark queries, one module each, with its SQL as in the official suite."""
