"""The commands of the cyclic query of CheckMate's experiments: links between nodes that come and go."""
