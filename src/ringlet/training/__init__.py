"""Stage 7: training. Takes a data set (1), a network (2, 3) and an optimizer (5); gives a trained model and
its metrics.

Read ``step`` (one update) first, then ``loop`` (epochs), ``trainer`` (the Python interface) and ``run`` (what
``ringlet train`` does). Everything that watches a run is a callback over the events of ``events``.
"""
