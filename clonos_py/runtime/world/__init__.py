"""All processes of a job in one thread, for the drivers ``sim`` and ``local`` (D8).

A world runs the executors of every process and of the coordinator. Their environments schedule actions. The two drivers
differ in the scheduler (virtual or real time), in the delays between an instruction and its effect, and in the layers
that only the simulator puts between executors and world: for failures, hung processes and cut connections.
"""
