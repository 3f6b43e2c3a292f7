"""Simulated worlds of claims: the real fold, the real consumers and the real job, without members.

They stand beside the worlds of groups, with dice of their own: a known seed of groups stays as it
was. The cluster, the job's drivers, processes and time are those of the groups' worlds.
"""
