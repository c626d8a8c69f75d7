"""Stage 7: training. Takes a configuration, a data set (1), a network (2, 3) and an optimizer (5); gives a trained
model and its metrics.

Read ``step`` (one update) first, then ``loop`` (epochs) and ``session``: it builds the parts of a run in order, each by
its function of ``components``, and trains. ``run`` is a whole run in its directory, for ``ringlet train``; ``trainer``
is the face for Python. All that watches a run is an observer (``observers``): callbacks over the records of ``events``,
and what ranks do together, checkpoints and pictures. ``resuming`` finds the way back into a run.
"""
