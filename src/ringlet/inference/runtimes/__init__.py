"""One module per framework that runs artifacts; each keeps ``ringlet.inference.artifact.Runtime``."""
