"""What the engine costs, measured: `coord bench settle|load|core`, and all three by `make bench`.

Figures are JSON lines on stdout, talk is on stderr. Every run begins with a line about the
machine and how busy it was, since a figure without them says nothing.
"""
