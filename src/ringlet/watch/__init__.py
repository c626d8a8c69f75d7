"""A page of a run, while it is going on or afterwards: takes run directories, gives curves in a browser.

``run_files`` follows ``events.ndjson`` as it grows, ``run_view`` keeps of it what a screen can show (with ``notes`` in
words, the times of ``ranks`` and the last ``evaluation``), ``pages`` says what a page lacks of that and writes it as
one file, ``server`` brings it to browsers (loopback only).
"""
