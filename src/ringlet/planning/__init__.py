"""What a run would cost, before it is started: ``ringlet plan``.

Takes a network, a batch, a machine (measured for a few seconds, or described) and a network between machines; gives
memory per worker, bytes, time per step and epoch, speed-up and what binds, for any number of workers.

In the order of reading: ``workload`` (what a step computes and sends), ``network`` (what sending costs, and what hides
in the pass), ``speed`` (of a machine, measured by ``measuring`` or described; and waiting for the slowest worker),
``forecast`` (all of it for one number of workers), ``advice`` (how many workers), ``planner`` (from options to a plan)
and ``report``. See docs/planning.md for the formulae.
"""
