"""The cyclic query of CheckMate's experiments: which nodes can be reached from source nodes, and along which paths."""
