"""Causal services: time, randomness, HTTP, timers and user-defined services. Their answers are logged and replayed."""

if __name__ == "services":
    raise ImportError("import clonos_py.services: the folder services at the top is reached through the package")
