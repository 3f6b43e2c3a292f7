"""Members of server-assigned groups.

They send the topics that they want; the coordinator grants partitions and demands them back.
`membership` is the state machine, `holding` the partitions of the member, `releases` how it lets
them go; `member` is the shell.
"""

from coordlib.client.assigned.member import AssignedMember

__all__ = ["AssignedMember"]
