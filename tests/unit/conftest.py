"""Property tests of all rooms: fifty examples each, and no deadline for one, since the machine may be shared."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", max_examples=50, deadline=None)
settings.load_profile("unit")
