"""Which topic of a name is read, where brokers lag or do not answer.  # INV-130"""

from collections.abc import Collection

from coordlib.client.groups.reading import COMMITS_MS, LOOK_MS, TopicIds
from coordlib.client.kit.data import LAG_MS
from coordlib.errors import CannotReach


class _Cluster:
    """Brokers that answer at a clock."""

    def __init__(self) -> None:
        self.now_ms, self.questions, self.topic_id = 0, 0, "old"
        self.ids = TopicIds(self._ask, lambda work: work(), lambda: self.now_ms)

    def _ask(self, topics: Collection[str]) -> dict[str, str]:
        self.questions += 1
        if not self.topic_id:
            self.now_ms += 3_000
            raise CannotReach("No answer.", "")
        return dict.fromkeys(topics, self.topic_id)

    def told(self, topic_id: str) -> bool:
        """An answer; whether the topic is begun anew."""
        self.topic_id = topic_id
        self.ids.ask(["t"])
        self.ids.take_in()
        anew = self.ids.anew(["t"])
        for each in anew:
            self.ids.begin(each, "")
        return bool(anew)


def begun() -> _Cluster:
    cluster = _Cluster()
    cluster.told("old")
    cluster.ids.begin("t", "")
    return cluster


def test_a_broker_that_lags_takes_no_topic_back() -> None:
    cluster = begun()
    assert cluster.told("new")

    assert not cluster.told("old")
    assert cluster.ids.refused(["t"]) == set()
    assert not cluster.told("new")
    assert cluster.ids.begun("t") == "new"
    assert cluster.told("newer")


def test_what_was_taken_for_old_and_stays_is_the_topic() -> None:
    """The broker that was asked second was the one that lagged."""
    cluster = begun()
    assert cluster.told("new")
    cluster.now_ms += LAG_MS
    assert cluster.told("old")


def test_what_had_stood_before_it_was_replaced_is_old_for_good() -> None:
    """INV-149: a broker may lag for any time; this client has seen which one came first."""
    cluster = begun()
    cluster.now_ms += LAG_MS
    assert cluster.told("new")
    cluster.now_ms += 100 * LAG_MS

    assert not cluster.told("old")
    assert cluster.ids.refused(["t"]) == set()
    assert cluster.told("newer")
    assert not cluster.told("new")


def test_an_id_that_only_an_offset_has_named_is_replaced_too() -> None:
    """The topic was away when its partition was begun."""
    cluster = _Cluster()
    cluster.ids.begin("t", "old")
    cluster.now_ms += LAG_MS
    assert cluster.told("new")
    assert not cluster.told("old")


def test_ids_that_are_kept_have_a_bound() -> None:
    cluster = begun()
    for number in range(100):
        cluster.now_ms += LAG_MS
        assert cluster.told(f"id {number}")
    assert cluster.told("old"), "forgotten"
    assert not cluster.told("id 95")


def test_one_asynchronous_commit_waits_where_nobody_answers() -> None:
    cluster = begun()
    cluster.topic_id, cluster.now_ms = "", 60_000
    asked = cluster.questions
    for _ in range(10):
        assert not cluster.ids.ask(["t"], COMMITS_MS)
    assert cluster.questions == asked + 1

    cluster.now_ms += LOOK_MS
    cluster.ids.ask(["t"], COMMITS_MS)
    assert cluster.questions == asked + 2
    cluster.topic_id = "old"
    assert cluster.ids.ask(["t"]), "a commit that waits for its answer asks always"
    assert cluster.questions == asked + 3


def test_an_answer_for_one_topic_is_none_for_another() -> None:
    cluster = begun()
    cluster.now_ms += COMMITS_MS
    assert cluster.ids.ask(["t"], COMMITS_MS)
    asked = cluster.questions

    assert cluster.ids.ask(["u"], COMMITS_MS)
    assert cluster.questions == asked + 1
    assert cluster.ids.ask(["t", "u"], COMMITS_MS)
    assert cluster.questions == asked + 1
