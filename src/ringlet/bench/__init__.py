"""How fast ranks exchange: the collectives of Ringlet beside those of plain MPI and Gloo, on the same ranks."""
