"""Stage 4: communication. Takes arrays of every rank; gives them combined, gathered or exchanged, alike on all ranks.

The way: ``environments`` finds out who started this process and as which rank -> ``world.connect`` makes the fitting
*communicator* (:mod:`ringlet.comm.contract`): ``single``, ``node`` (one machine, shared memory), ``mpi`` or ``torch``.
The last two join the shared memory inside each machine with a ``wire`` between machines (``layered``). A *collective*
(:mod:`ringlet.comm.collective`) is described once, with a function for each of these kinds: ``reductions``,
``transfers``. ``world`` holds the communicator of the whole process for scripts; ``compression`` makes less travel over
slow links.

Nothing is imported here: launchers need ``environments`` alone, in every process that they start.
"""
