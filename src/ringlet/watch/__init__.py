"""A page of a run, while it is going on or afterwards: takes run directories, gives curves in a browser.

``log`` follows ``events.ndjson`` as it grows, ``run_view`` keeps of it what a screen can show, ``document`` says what a
page lacks of that, ``server`` brings it there (loopback only) and ``saved`` writes the same page as one file.
"""
