"""A real server of PostgreSQL, which tests use, too, and the figures of what follows its changes."""
