"""Stage 2: takes a name or builder calls, gives a validated network (``ModelSpec``) and its first weights.

A network is data; what its operations mean is asked of :mod:`ringlet.operations`. Read in this order: ``spec`` (the
graph), ``builder`` (functions that write a graph), ``initializers`` (first weights), ``zoo`` (known families),
``table`` (rows for printing) and ``files`` (self-describing model files). No engine is needed for any of it.
"""
