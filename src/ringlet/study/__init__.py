"""Scaling studies: takes a grid of runs, gives tables, plots and a verdict on whether another worker pays off.

Read in this order: ``grid`` (which runs, in which order), ``options`` (the grid from options or a TOML file),
``preparation`` (what follows from networks and data), ``directory`` (what is kept on disk), ``runner`` (one
``ringlet train`` for each cell and repeat), ``measurement`` (figures of a run from its event log), ``summary``
(medians, speed-up, shares), ``verdicts`` (one sentence per comparison), ``tables``, ``plots``, ``report``.
``machine`` and ``page`` describe a computer and write one self-contained HTML page, for anybody.
"""
