"""The Nexmark queries on other engines, on this machine, over the same files: Flink SQL, PyFlink, Bytewax.

The others live in environments of their own under ``.peers`` and are never dependencies of the package. What runs there
(``flink_job.py``, ``bytewax_job.py``) imports nothing from here.
"""
