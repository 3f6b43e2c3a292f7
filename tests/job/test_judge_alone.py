"""Records that are judged beside any query give what they give in one."""

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from coordlib.job.batch import assemble, judge_readable
from coordlib.job.operator import judge_alone
from coordlib.job.pipelines import fold_groups
from tests.tools.driving import SETTINGS, Conversation, join

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("joins", [0, 1, 3])
def test_outputs_and_report_are_those_of_the_fold(spark: "SparkSession", joins: int) -> None:
    """INV-144: a record that is judged by itself is judged as it would be in a batch."""
    settings, talk = replace(SETTINGS, reply_partitions=1), Conversation()
    for number in range(joins):
        talk.send(join(f"client-{number}"))
    blob, _ = judge_readable(fold_groups, None, talk.log[:1], settings)

    columns = judge_alone(spark, fold_groups, settings, blob, talk.log[1:]).toArrow().to_pydict()
    judged = assemble(7, zip(*columns.values(), strict=True))

    assert judged == assemble(7, judge_readable(fold_groups, blob, talk.log[1:], settings)[1])
    assert len(judged.reports) == 1
