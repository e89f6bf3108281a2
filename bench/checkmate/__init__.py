"""``python -m clonos_py.bench checkmate``: the evaluation of CheckMate (Siachamis et al., ICDE 2024, sections VI, VII).

Queries 1, 3, 8 and 12 of Nexmark and the cyclic reachability query run under each checkpoint protocol, with causal
recovery and with rollback. The rate of a run is a share of the maximum sustainable throughput of the same combination.
One task is killed during the run.

``grid`` lists the runs, ``jobs`` builds the jobs, ``metrics`` computes the figures of a run, and ``running`` carries
out the runs. The file of results and the tables beside the figures of the paper are in
``clonos_py.evaluation.checkmate`` (``results``, ``tables``, ``paper``).
"""
