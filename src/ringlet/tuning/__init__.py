"""Tuning runs: takes options of a run and what they may be, gives the configuration that learned best.

``range_test`` trains once with an ever larger learning rate and reads from the losses which one to take. The rest is a
search: ``space`` (which options, which values), ``methods`` (which trials are trained for how long), ``options`` (a
search from a command line or Python), ``directory`` (what is kept on disk), ``runner`` (one ``ringlet train`` for each
trial and stage, several side by side), ``summary`` (trials in order of merit), ``plots``, ``report``, ``search``
(all of it, as ``ringlet.tune``).
"""
