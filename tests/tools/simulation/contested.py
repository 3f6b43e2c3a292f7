"""INV-09, INV-21: two programs never both may work on one partition, at any true time."""

from coordlib.client.kit.events import Partitions, TopicPartition
from tests.tools.simulation.program import Program
from tests.tools.simulation.scheduler import Scheduler
from tests.tools.simulation.teams import Team
from tests.tools.simulation.violation import Violation


class Contested:
    """Looks whether some members of one group were told the same, and what they may do then.

    This runs after everything that happens. So fences are asked only while two programs were told
    the same, which is looked at when one was told something else.
    """

    def __init__(self, scheduler: Scheduler, teams: list[Team]) -> None:
        self._scheduler, self._teams = scheduler, teams
        #: What each living program was told to own when that was last looked at.
        self._told: dict[Program, Partitions | None] = {}
        self._is_contested = False
        #: Programs that live, and some that have died since the newest news.
        self._watched: list[Program] = []

    def watch(self, program: Program) -> None:
        """One more of them."""
        self._watched.append(program)

    def check(self) -> None:
        """Raises Violation."""
        has_news = False
        for program in self._watched:
            told = program.told if program.is_alive else None
            if self._told.get(program) is not told:
                self._told[program] = told
                has_news = True
        if has_news:
            self._watched = [program for program in self._watched if program.is_alive]
            claims = [
                (program.group, each) for program, told in self._told.items() for each in told or ()
            ]
            self._is_contested = len(claims) > len(set(claims))
        if self._is_contested:
            for team in self._teams:
                self._check_fences(team)

    def _check_fences(self, team: Team) -> None:
        owners: dict[TopicPartition, Program] = {}
        for program in team.programs:
            if program.is_alive and not program.is_stopped:
                for each in program.may_act_on():
                    if owners.setdefault(each, program) is not program:
                        raise Violation(
                            f"INV-21: {owners[each].name} and {program.name} may both work on "
                            f"{each} at {self._scheduler.now_ms} ms"
                        )
