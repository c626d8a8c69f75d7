"""Commands that measure Ringlet beside its peers and print a table: ``python -m benchmarks.training_speed``."""
