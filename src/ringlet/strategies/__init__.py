"""Stage 6: how replicas agree. Takes the gradients of all shards of a batch; gives all ranks the same parameters."""
