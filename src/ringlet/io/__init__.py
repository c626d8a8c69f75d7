"""Files and their formats, for all packages: takes values and arrays, gives bytes, and back without trust in them.

``disk`` is how files are replaced, appended to and locked where the disk may refuse, ``jsontext`` JSON from strangers,
``safetensors`` named arrays, ``encoding`` nested values without pickle, ``storage`` files of this machine or of an
object store by their address.
"""
