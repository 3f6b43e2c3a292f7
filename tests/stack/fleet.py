"""Broker processes of one cluster (`tests.stack.broker`), and what they wrote down."""

from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.processes import Line, Place, Processes, Witness


class Term(NamedTuple):
    """The acknowledgements of one process in one leader epoch of a partition."""

    process: str
    place: Place
    epoch: int
    first_ns: int
    last_ns: int


class Broker(Witness):
    """One process, by its witness."""

    def __init__(self, name: str, number: int, folder: Path) -> None:
        super().__init__(name, folder)
        self.number = number
        self.put, self.deaf = self.switch("put"), self.switch("deaf")
        #: Its data's; a process that is started again under its number has the same one.
        self.data = folder / f"data-{number}"
        #: (place, epoch) -> first and last acknowledgement.
        self.acks: dict[tuple[Place, int], tuple[int, int]] = {}
        #: What it leads, by what it was told.
        self.leads: dict[Place, int] = {}

    def take(self, line: Line) -> None:
        place = line.get("topic", ""), line.get("partition", -1)
        match line["what"]:
            case "ack":
                key, at_ns = (place, line["epoch"]), line["at_ns"]
                self.acks[key] = self.acks.get(key, (at_ns, at_ns))[0], at_ns
                return
            case "leader":
                self.leads[place] = line["epoch"]
            case "follower" | "stop":
                self.leads.pop(place, None)
            case "resign":
                for row in line["partitions"]:
                    self.leads.pop((row[0], row[1]), None)
            case "fenced":
                self.leads.clear()
        super().take(line)

    def acks_of(self, place: Place) -> tuple[int, int] | None:
        """Its newest term as leader of a partition: first and last acknowledgement."""
        terms = [key for key in self.acks if key[0] == place]
        return self.acks[max(terms, key=lambda key: key[1])] if terms else None


class Fleet(Processes[Broker]):
    """The processes of one cluster."""

    def __init__(self, folder: Path, cluster: str, config: dict[str, Any]) -> None:
        super().__init__(folder)
        self.cluster, self._config = cluster, config

    def start(self, *names: str, number: int | None = None) -> None:
        """Start processes; "b1" is broker 1 unless a number is given."""
        for name in names:
            broker = Broker(name, int(name[1:]) if number is None else number, self.folder)
            given = {"cluster": self.cluster, "broker": broker.number, "data": broker.data}
            self.launch(broker, "tests.stack.broker", config=self._config, **given)

    def until_led(self, count: int, *names: str) -> None:
        """Wait until these lead so many partitions among them, and acknowledge in all."""
        members = [self.members[name] for name in names]

        def is_led() -> bool:
            led = [(each, place, epoch) for each in members for place, epoch in each.leads.items()]
            return len(led) == count and all((p, e) in each.acks for each, p, e in led)

        self.until(f"{', '.join(names)} lead {count} partitions", is_led)

    def terms(self) -> list[Term]:
        """All terms of all processes that acknowledged anything."""
        return [
            Term(broker.name, place, epoch, *times)
            for broker in self.members.values()
            for (place, epoch), times in broker.acks.items()
        ]

    def holds(self) -> None:
        """INV-71, INV-72: of one partition no two terms overlap in true time, and epochs rise."""
        terms = sorted(self.terms(), key=lambda each: (each.place, each.first_ns))
        for former, later in pairwise(terms):
            if former.place == later.place:
                assert former.last_ns < later.first_ns, (former, later)
                assert former.epoch < later.epoch, (former, later)
