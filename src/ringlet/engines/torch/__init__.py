"""The engine on PyTorch: the same spec, flat buffers and random streams, PyTorch's arithmetic.

``expressions`` says every operation in PyTorch's words (the export to PyTorch takes them too), ``program`` makes a
function of a spec, ``losses`` has the losses, ``memory`` and ``gradients`` join tensors and flat buffers, on the
processor without a copy, ``devices`` finds the GPUs, ``replica`` runs it all. Importing this package does not import
PyTorch; its modules but the first do.
"""
