"""The Nexmark queries, one module each, with the SQL of the official suite."""
