"""``python -m clonos_py.bench checkmate``: the evaluation of CheckMate (Siachamis et al., ICDE 2024, sections VI, VII).

Queries 1, 3, 8 and 12 of Nexmark and the cyclic reachability query run under each checkpoint protocol, with causal
recovery and with rollback, at a share of the maximum sustainable throughput that the same combination has. A task is
killed on the way. ``grid`` says which runs there are, ``jobs`` what runs, ``metrics`` what is read off a run,
``results`` is the file of the finished runs, ``tables`` lays them beside the figures of the paper (``paper``).
"""
