"""What the engine costs, measured: `python -m tests.tools.bench NAME`, or `make bench`.

Figures are JSON lines on stdout, talk is on stderr. Every run begins with a line about the
machine and how busy it was, since a figure without them says nothing.

`settle` has whole consumers on both sides. From 64 members on, or with `--light`, ours are light:
real members that share one transport and one polling thread (`settle_light`), which is the way for
any program with many members. Its lines say so (`"light": true`), and there is no peer beside them.
The line `filled` says what the first fill cost: cores by role, the job's batches, the time from one
to the next, and the requests that they judged.
"""
