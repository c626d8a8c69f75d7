"""One module per framework that runs artifacts; each keeps ``contract.Runtime``."""
