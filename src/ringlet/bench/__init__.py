"""How fast ranks exchange: the collectives of Ringlet beside those of plain MPI and Gloo, on the same ranks.

Also what all measurements and their reports share: ``timing`` (variants take turns; medians, ranges, ratios),
``plotting`` (one look for all plots) and ``quantities`` (times, rates and sizes as people write them).
"""
