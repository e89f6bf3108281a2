"""Nexmark: an auction site's events, its queries, and an independent computation of the answers."""
