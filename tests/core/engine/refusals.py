"""How tests name a refusal that history keeps: its answer, and the line of history behind it."""

from typing import Final

JUDGED_BEFORE: Final = (
    "This JoinGroup was judged before: let go, then join again under an id of its own."
)
OTHER_GENERATION: Final = "Join again with the generation of your newest answer, or with -1."


def refused(
    answer: str, member: str = "", generation: int = 2, cause: str = "HERE", reason: str = ""
) -> list[str]:
    """The answer, and its event. The member is that of the answer, or the one given.

    The reason is shown only where it is not what the error says of itself.
    """
    head, sender, request, error, *rest = answer.split()
    fields = [f"generation={generation}"] if generation > 0 else []
    named = member or dict(part.split("=") for part in rest).get("member", "")
    fields += [f"member={named}"] if named else []
    fields += [f"cause={cause}"]
    fields += [f'reason="{reason}"'] if reason else []
    fields += [f"error={error}", f"request={request}", f"client={sender.partition('#')[0]}"]
    return [answer, " ".join([head.replace("answer", "event"), "RequestRejected", *fields])]
