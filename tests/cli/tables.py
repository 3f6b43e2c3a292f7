"""History tables without a JVM: the events of a log, written by delta-rs."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from coordlib.history.tables import COLUMNS, EVENTS
from tests.history.rows import Log

_KINDS = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}


def write_events(log: Log, tables: Path) -> None:
    """Only the table events, as right after the archive's first commit."""
    rows = [_row(json.loads(value)) for _, value, topic, *_ in log.rows if topic == "coord.events"]
    schema = pa.schema([(name, _KINDS[kind]) for name, kind in COLUMNS[EVENTS].items()])
    path = str(tables / EVENTS)
    write_deltalake(path, pa.Table.from_pylist(rows, schema), partition_by=["date"])


def _row(event: dict) -> dict:
    time = datetime.fromtimestamp(event["time_ms"] / 1000, UTC)
    return event | {
        "time": time,
        "date": time.date(),
        "shard": 0,
        "log_offset": int(event["event_id"].split("-")[-2]),
        "group_id": event["group"],
        "member_id": event["member"],
        "detail": json.dumps(event["detail"]),
    }
