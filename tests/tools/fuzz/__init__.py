"""Fuzzing of the decode wall, and of a shard behind it: whatever anybody writes, the job lives.

    make fuzz                                   ten million inputs, with all cores
    python -m tests.tools.fuzz --inputs 100000 --seed 7

The mutator is our own and knows the structure of requests. Coverage cannot guide it: the branches
that reject bytes are msgspec's, in C, and a tool that watches Python's sees nothing of them.
"""
