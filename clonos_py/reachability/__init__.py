"""The cyclic query of CheckMate's experiments: which nodes are reached from source nodes, along which paths."""
