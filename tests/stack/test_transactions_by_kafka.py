"""Two copiers in one group, over a real broker and job: every record once, whatever is killed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordlib.core.wire.offsets import KAFKA
from coordlib.local.stack import Stack
from tests.stack.copying import Copying

pytestmark = [pytest.mark.stack, pytest.mark.fault]

RECORDS = 2_000


@pytest.fixture
def copying(own_stack: Stack, start_job: Callable[..., None], tmp_path: Path) -> Iterator[Copying]:
    start_job()
    servers = own_stack.bootstrap_servers
    with Copying(servers, servers, tmp_path, KAFKA, RECORDS) as copying:
        yield copying


@pytest.mark.chaos
def test_every_record_is_copied_once_whatever_is_killed(
    copying: Copying, own_stack: Stack, start_job: Callable[..., None]
) -> None:
    """A copier dies between acceptance and commit, and the job is killed while its offsets wait.

    INV-97: the other one owns the partitions soon, and must not read them before Kafka, which alone
    knows, has aborted what the dead one has left open.
    """
    copying.start("a")
    copying.start("b")
    copying.until("both copy", lambda: sum(copying.marked().values()) > RECORDS // 10)

    copying.dies_at("a", "hold", "accepted")
    own_stack.kill_job()
    start_job()
    copying.ends_well()
