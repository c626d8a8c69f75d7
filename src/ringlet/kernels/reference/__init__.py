"""The kernels in readable NumPy: the specification of what the compiled ones compute, and what runs without them.

One module per family; the rules that hold for all stand in :mod:`ringlet.kernels.contract`.
"""
