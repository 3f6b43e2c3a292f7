"""Members of groups whose coordinator divides (server-assigned groups).

They say what they want and are told what they may work on, and what to let go of. `membership` is
the state machine, `holding` what the member has, `releases` how it lets go; `member` the shell.
"""

from coordlib.client.assigned.member import AssignedMember

__all__ = ["AssignedMember"]
