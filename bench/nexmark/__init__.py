"""Nexmark: an auction site's events, nine queries over them, and an independent computation of the answers."""
