"""Who logs in wrongly, or has no right at all, is told so by everything that asks brokers."""

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from coordlib.client.spark.progress import Publication
from coordlib.errors import CoordError, NotAllowed, SetupError
from coordlib.exit_codes import USAGE, of_command, of_job
from coordlib.history.topics_read import ArchivedTopics
from coordlib.kafka import topics
from coordlib.kafka.acls import grant
from coordlib.kafka.layout import find_place
from coordlib.kafka.roles import Role, rights
from tests.stack.secured.scene import Scene

pytestmark = pytest.mark.stack

WRONG = "hunter2hunter2"
FIRST_CONTACTS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "job": lambda options: topics.require(options, "coord"),
    "archive": lambda options: ArchivedTopics(options, "coord"),
    "member": lambda options: find_place(options, "coord", 3.0),
    "publisher": lambda options: Publication(options, "g", "coord"),
    "acl apply": lambda options: grant(options, "User:x", rights(Role.ARCHIVE, "coord")),
    "topics create": lambda options: topics.create(options, "coord", None, None, 1),
}


@pytest.mark.parametrize(
    "asks", ["job", "member", pytest.param("archive", marks=pytest.mark.chaos)]
)
def test_a_wrong_password_is_told_and_not_tried_again(scene: Scene, asks: str) -> None:
    """A supervisor that starts a job again and again locks the account."""
    options = {**scene.stack.client(str(Role.JOB)), "sasl.password": WRONG}

    with pytest.raises(SetupError) as refused:
        FIRST_CONTACTS[asks](options)

    assert refused.value.what == "The brokers do not accept this user with this password."
    assert of_job(refused.value) == of_command(refused.value) == USAGE
    assert WRONG not in str(refused.value)


def test_a_mechanism_that_the_brokers_lack_is_told(scene: Scene) -> None:
    options = {**scene.stack.client(str(Role.READER)), "sasl.mechanism": "PLAIN"}

    with pytest.raises(SetupError, match="do not offer this way to log in"):
        find_place(options, "coord", 3.0)


@pytest.mark.parametrize("asks", FIRST_CONTACTS)
def test_a_principal_without_any_right_is_told_which_it_needs(scene: Scene, asks: str) -> None:
    """It logs in, and the brokers show it an empty cluster."""
    nobody = scene.principals.new([])

    with pytest.raises(NotAllowed, match=r"A right is missing: .* on ") as refused:
        FIRST_CONTACTS[asks](nobody)

    assert nobody["sasl.password"] not in str(refused.value)


def test_commands_say_it_and_change_nothing(scene: Scene) -> None:
    nobody = scene.principals.new([])
    command = partial(scene.command, nobody)

    for words in (
        ("groups", "list"),
        ("groups", "describe", "billing"),
        ("groups", "release", "billing"),
        ("topics", "check"),
        ("topics", "create", "--prefix", "mine", "--replication", "1"),
        ("acl", "apply", "--role", "archive", "--principal", "User:x"),
    ):
        with pytest.raises(CoordError, match="A right is missing") as refused:
            command(*words)
        assert refused.value.where == f"exit code {USAGE}"
        assert len(refused.value.what.splitlines()) == 3, words
