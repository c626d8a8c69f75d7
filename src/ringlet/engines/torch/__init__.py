"""The engine on PyTorch: the same spec, flat buffers and random streams, PyTorch's arithmetic.

``program`` makes a function of a spec, of the expressions that operations have for PyTorch (the export to PyTorch takes
them too), ``losses`` has the losses, ``devices`` joins tensors and flat buffers, on the processor without a copy, and
finds the GPUs, ``replica`` runs it all. Importing this package does not import PyTorch; its modules do.
"""
