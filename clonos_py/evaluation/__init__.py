"""Nexmark, CheckMate's experiments and Spark as a second engine, to evaluate the engine, which imports none of them."""
