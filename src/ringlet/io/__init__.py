"""Files and their formats, for all packages: takes values and arrays, gives bytes, and back without trust in them.

``disk`` is how files are replaced and appended to where the disk may refuse, ``jsontext`` JSON from strangers,
``safetensors`` named arrays, ``locks`` marks of files that are in use, ``space`` room for files that are mapped into
memory.
"""
