"""The cyclic query of CheckMate's experiments, and its commands as a source. Their generator is in ``evaluation``."""
