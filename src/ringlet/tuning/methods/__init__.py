"""Methods of a search: which trials are trained, and for how many epochs. A new one is a module here, or a plugin."""
