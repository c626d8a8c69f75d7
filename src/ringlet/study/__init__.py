"""Scaling studies: takes a grid of runs, gives tables, plots and a verdict on whether another worker pays off.

Read in this order: ``grid`` (which runs, in which order), ``options`` (the grid from options or a TOML file),
``design`` (what follows from networks, engines and data), ``directory`` (what is kept on disk), ``runner`` (one
``ringlet train`` for each cell and repeat), ``measurement`` (times and metrics of a run from its event log),
``summary`` (medians, speed-up, shares), ``verdicts`` (one sentence per comparison), ``tables``, ``plots``, ``report``.
"""
