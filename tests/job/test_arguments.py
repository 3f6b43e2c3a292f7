"""What the command line of a job says about claims."""

from pathlib import Path

import pytest

from coordlib.errors import SetupError
from coordlib.job.main.arguments import (
    archive_options,
    claims_of_job,
    claims_options,
    coordinator_options,
    parse_arguments,
    parse_claims_arguments,
)
from coordlib.job.main.claims_query import ClaimsOptions

PLACES = ["--bootstrap-servers", "127.0.0.1:9092", "--checkpoint", "/tmp/check/"]


def beside(*arguments: str) -> ClaimsOptions | None:
    """What a coordination job runs beside its groups."""
    given = parse_arguments([*PLACES, "--without-archive", *arguments])
    return claims_of_job(given, coordinator_options(given))


def test_without_a_topic_there_is_no_claims_query() -> None:
    """Nobody who upgrades gets a second query that he did not ask for."""
    assert beside() is None


def test_the_query_beside_has_a_checkpoint_beside() -> None:
    found = beside("--set", "claims.topic=__marshal")

    assert found is not None
    assert (found.topic, found.checkpoint) == ("__marshal", "/tmp/check-claims")
    engine = found.of_query.engine
    assert (engine.trigger_interval_ms, engine.max_offsets_per_trigger) == (2_000, 200_000)
    assert (found.is_rebuild, found.rebuilds_if_empty) == (False, False)


def test_the_topic_may_be_followed_by_a_job_of_its_own() -> None:
    assert beside("--set", "claims.topic=__marshal", "--without-claims") is None
    alone = claims_options(parse_claims_arguments([*PLACES, "--topic", "__marshal.6s"]))

    assert (alone.topic, alone.checkpoint) == ("__marshal.6s", "/tmp/check/")


def test_a_job_of_claims_logs_in_by_its_file(tmp_path: Path) -> None:
    """Without it the job would speak to secured brokers without TLS and login."""
    file = tmp_path / "claims.properties"
    file.write_text("security.protocol=SASL_SSL\n")
    file.chmod(0o600)
    named = [*PLACES, "--topic", "__marshal", "--kafka-file", str(file)]
    found = claims_options(parse_claims_arguments(named))

    assert found.kafka.librdkafka()["security.protocol"] == "SASL_SSL"
    with pytest.raises(SetupError):
        claims_options(parse_claims_arguments([*named[:-1], str(tmp_path / "nowhere")]))


def test_a_rebuild_of_the_groups_is_one_of_the_claims_where_their_folder_is_empty() -> None:
    """All checkpoints were lost at once; or one of them."""
    both = beside("--set", "claims.topic=__marshal", "--rebuild")
    one = beside("--set", "claims.topic=__marshal", "--rebuild-claims")

    assert both is not None
    assert one is not None
    assert (both.is_rebuild, both.rebuilds_if_empty) == (False, True)
    assert (one.is_rebuild, one.rebuilds_if_empty) == (True, False)


def test_lost_requests_are_accepted_by_a_rebuild_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """An archive of the same start accepts what its topics have lost."""
    with pytest.raises(SystemExit):
        beside("--accept-loss")
    assert "--rebuild" in capsys.readouterr().err
    for rebuild in ((), ("--rebuild",)):
        given = parse_arguments([*PLACES, "--tables", "t", *rebuild, "--accept-loss"])
        options = coordinator_options(given)
        assert options.accepts_loss == bool(rebuild)
        assert archive_options(given, options).accepts_loss


@pytest.mark.parametrize("topic", ["__marshal.5s", "__marshal.3601s", "m.0s"])
def test_a_topic_whose_name_gives_no_interval_is_refused_before_spark_starts(topic: str) -> None:
    with pytest.raises(SetupError) as caught:
        beside("--set", f"claims.topic={topic}")

    assert len(str(caught.value).splitlines()) == 3
    assert topic in str(caught.value)


def test_a_job_of_claims_without_a_topic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"claims\.topic"):
        claims_options(parse_claims_arguments(PLACES))
