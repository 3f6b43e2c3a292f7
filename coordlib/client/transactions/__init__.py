"""Exactly once: transactions decided by Kafka or the coordinator; readers of committed records.

`producer.py` is the public producer; `machine.py` has its states, `by_kafka.py` and
`by_coordinator.py` (with `life.py`) the two backends, `data_cluster.py` the writing of records.
`idempotent.py` writes without transactions. `committed_reader.py` reads what is committed, by the
rule of `committed.py`. `delta_commits.py` finds out whether a Delta table has a batch.
"""
