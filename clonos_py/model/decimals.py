"""Decimal arithmetic that is the same whatever context user code has set for its thread."""

from __future__ import annotations

from decimal import Context

EXACT = Context(prec=76)
"""As many digits as the widest decimal of Arrow has."""
