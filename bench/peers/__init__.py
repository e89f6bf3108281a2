"""Runs the Nexmark queries on other engines (Flink SQL, PyFlink, Bytewax), on this machine, over the same files.

The other engines are installed in separate environments under ``.peers``. They are never dependencies of the package.
The scripts that run there (``flink_job.py``, ``bytewax_job.py``) import nothing from the package.

All engines run under the same terms:

- The machine and the parallelism are the same.
- They read the same Parquet files: for each task one file of each kind, with events in order of time.
- Results are discarded (q10 writes files).
- A checkpoint is taken every 5 s, to a local folder.
- The clock starts when the first event is seen to be read, so starting, planning and deploying do not count. A warm-up
  follows, in which the JVM compiles: 10 s, or half of the run if the run is shorter than 20 s. At most 40 s after it
  count.
- All processes are restarted for each run, except Ray itself. Before a run all files are read once, so that the page
  cache of the system holds them if they fit.
- Engines take turns. The median of an engine's runs counts.
- A query that reads no bids gets a stream that is four times as long.
- The number of events is that of all kinds in the part of the stream that was read, for every engine, even if the
  query skips a kind.

Flink is a session cluster with one TaskManager of 8 GB and a slot for each task. It uses G1 and object reuse, and the
mini-batches (2 s, 50,000 rows) and split distinct aggregates of the official benchmark. State is on the heap, or in
RocksDB with incremental checkpoints if it grows with the stream (q3, q4, q9, q18, q19, q20). ``count_char`` and the
look-up in the side input of q13 are Java functions. Times are read as ``TIMESTAMP(3)``, the official type, so Flink
computes in milliseconds. Bytewax runs one process for each task and takes a snapshot every 5 s.
"""
