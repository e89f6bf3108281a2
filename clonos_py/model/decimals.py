"""Decimal arithmetic that does not depend on the context that user code has set for its thread."""

from __future__ import annotations

from decimal import Context

EXACT = Context(prec=76)
"""A context with as many digits as the widest decimal of Arrow."""
