"""The Nexmark queries on other engines, on this machine, over the same files: Flink SQL, PyFlink, Bytewax.

The others live in environments of their own under ``.peers`` and are never dependencies of the package. What runs there
(``flink_job.py``, ``bytewax_job.py``) imports nothing from here.

The same for all are: this machine, the parallelism, the Parquet files that are read (a file of each kind for each task,
events in order of time), results that go nowhere (q10: into files), a checkpoint every 5 s to a local folder, and what
counts. The clock starts with the first event that was seen read, so that starting, planning and deploying are left out;
then a warm-up of 10 s (half of a run that is over before), in which the JVM compiles; at most 40 s count. Processes are
restarted for each run, ours but for Ray itself, after the files were read once, so that the system has them in
memory if they fit; engines take turns, the median of the runs counts. A query that reads no bids has four times as long
a stream. Events are those of all kinds in the stretch of the stream that was read, also where a query skips a kind, for
every engine.

Flink is a session cluster with one TaskManager of 8 GB and a slot for each task, G1, objects reused, and the official
benchmark's mini-batches (2 s, 50,000 rows) and split distinct aggregates. State is on the heap; where it grows with the
stream (q3, q4, q9, q18, q19, q20) it is in RocksDB with incremental checkpoints. Its ``count_char`` and the look-up in
the side input of q13 are Java functions. Times are read as ``TIMESTAMP(3)``, the official type, so that it computes in
milliseconds. Bytewax has a process for each task and snapshots every 5 s.
"""
