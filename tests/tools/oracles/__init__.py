"""Kafka's own broker-side assignors (KIP-848), which no group here runs: answers to compare with.

The strategies of server-assigned groups heed capacities, and ignore topics that do not exist; these
know no capacities, and refuse such topics. `tests.tools.vectors` holds them against Kafka's own
cases, and tests hold strategies against them where both must agree.
"""
