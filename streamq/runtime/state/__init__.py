"""A kernel's state: baskets of Arrow chunks, cut into bins, so that a micro-batch reads what it touches and what falls due.

A basket of ``baskets`` stores chunks, and says when a bin gets one more and when it is rewritten. What a bin holds depends on
what its rows wait for: ``bins`` of cells of time, split by group where many rows lie in one; ``time_bins`` in the order of an
instant, divided as they grow; ``group_bins`` by the hashes of groups, with an ``agenda`` of what these wait for. The others say
what kernels keep in them: partial results and reported rows of windows (``window_bins``, ``blocks``).
"""
