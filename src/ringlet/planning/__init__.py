"""What a run would cost, before it is started: ``ringlet plan``.

Takes a network, a batch, a machine (measured for a few seconds, or described) and a network between machines; gives
memory per worker, bytes, time per step and epoch, speed-up and what binds, for any number of workers.

In the order of reading: ``workload`` (what a step computes and sends), ``network`` and ``collectives`` (what sending
costs), ``overlap``, ``stragglers``, ``memory``, ``machine`` (measured by ``measuring``, or described), ``forecast``
(all of it for one number of workers), ``advice`` (how many workers), ``planner`` (from options to a plan), ``report``
and ``plots``. See docs/planning.md for the formulae.
"""
