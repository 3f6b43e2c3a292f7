"""The list of classes of which a laptop's archive is made (`coordlib/local/class_archive.py`).

It is what the JVM of a job has loaded that judged requests and archived their history. It depends
on Spark, Delta, Kafka and Java: make it anew when one of them changes. Java skips what it does not
find, so an older list costs time and nothing else.

    python -m tests.tools.class_list      write coordlib/conf/classes.txt.gz
"""

import gzip
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka.cimpl import NewTopic

from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.installation import conf_file
from coordlib.kafka.clients import open_admin
from coordlib.local.stack import Stack
from coordlib.local.submission import read_properties

_TOPIC: Final = "class-list"
_OUT: Final = "classes.txt.gz"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_ARCHIVED_TIMEOUT_S: Final = 180.0


def main() -> int:
    """Run a stack, write the list; returns the exit code."""
    home = Path(tempfile.mkdtemp(prefix="class-list-"))
    listed, stack = home.with_suffix(".txt"), Stack(home)
    options = read_properties(conf_file("spark-local.conf"))[_JAVA_OPTIONS]
    try:
        stack.start_broker()
        told = f"{_JAVA_OPTIONS}={options} -XX:DumpLoadedClassList={listed}"
        stack.start_job(spark_args=["--conf", told])
        _be_a_member(stack)
        _wait_for_history(stack)
    finally:
        stack.down(wipe=True)
    classes = listed.read_bytes()
    listed.unlink()
    shutil.rmtree(home, ignore_errors=True)
    path = conf_file("coordinator.toml").with_name(_OUT)
    path.write_bytes(gzip.compress(classes, 9, mtime=0))
    print(f"{path}: {len(classes.splitlines()):,} lines")
    return 0


def _be_a_member(stack: Stack) -> None:
    """Join, commit and leave, so that there is something to judge and to keep."""
    settings = {"bootstrap.servers": stack.bootstrap_servers}
    client = open_admin(settings)
    for made in client.create_topics([NewTopic(_TOPIC, 2)]).values():
        made.result()
    consumer = CoordinatedConsumer({**settings, "group.id": _TOPIC, "enable.auto.commit": False})
    consumer.subscribe([_TOPIC])
    until = time.monotonic() + 10
    while time.monotonic() < until:
        consumer.poll(0.2)
    consumer.close()


def _wait_for_history(stack: Stack) -> None:
    deadline = time.monotonic() + _ARCHIVED_TIMEOUT_S
    while not list(stack.tables.glob("*/_delta_log/*0001.json")):
        if time.monotonic() > deadline:
            raise TimeoutError("The archive has written nothing.")
        time.sleep(1)
    time.sleep(5)


if __name__ == "__main__":
    sys.exit(main())
