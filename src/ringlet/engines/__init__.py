"""Stage 3: takes a network as data (``ModelSpec``) and batches, gives loss, gradients and predictions.

Every engine compiles the same spec into a :class:`~ringlet.engines.contract.Replica`; nothing above this stage knows
which one it holds.
"""
