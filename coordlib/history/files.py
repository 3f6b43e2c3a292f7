"""Small files wherever Spark can reach: a local folder, HDFS, an object store.

One of them is all that an archive's checkpoint has: the id that stands in its commits.
"""

import uuid
from typing import TYPE_CHECKING, Any, Final

import structlog

from coordlib.errors import StartRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID_FILE: Final = "coord-archive-id"
_log = structlog.get_logger("coordlib.archive")


def hadoop_file(spark: "SparkSession", uri: str) -> tuple[Any, Any]:
    """Hadoop's file system of a URI, and its path there: a local folder, HDFS, an object store."""
    path: Any = spark._jvm.org.apache.hadoop.fs.Path(uri)  # type: ignore[union-attr]
    return path.getFileSystem(spark._jsc.hadoopConfiguration()), path


def read_text(spark: "SparkSession", uri: str) -> str | None:
    """A small file's text; None if it is not there."""
    files, path = hadoop_file(spark, uri)
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def write_text(spark: "SparkSession", uri: str, text: str) -> None:
    """Write a small file, with its folders, over what is there."""
    files, path = hadoop_file(spark, uri)
    stream = files.create(path, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def delete(spark: "SparkSession", uri: str) -> None:
    """Delete a file, if it is there."""
    files, path = hadoop_file(spark, uri)
    files.delete(path, False)


def names_in(spark: "SparkSession", folder: str) -> list[str]:
    """The names in a folder; none where there is no folder."""
    files, path = hadoop_file(spark, folder)
    if not files.exists(path):
        return []
    return [str(each.getPath().getName()) for each in files.listStatus(path)]


def checkpoint_id(spark: "SparkSession", checkpoint: str) -> str:
    """The id of an archive checkpoint, drawn when it is first used.

    Raises:
        StartRefused: the folder is the checkpoint of another query.
    """
    known = (read_text(spark, f"{checkpoint}/{ID_FILE}") or "").strip()
    if known:
        return known
    files, _ = hadoop_file(spark, checkpoint)
    if files.exists(hadoop_file(spark, f"{checkpoint}/offsets")[1]):
        raise StartRefused(
            "This checkpoint was not made by the archive.",
            f"{checkpoint} has no {ID_FILE}",
            "Name another folder; an empty one is filled from the topics, without duplicates.",
        )
    drawn = uuid.uuid4().hex
    write_text(spark, f"{checkpoint}/{ID_FILE}", drawn)
    return drawn


def keep_id(spark: "SparkSession", checkpoint: str, identity: str) -> None:
    """Write the id again where the folder was removed under the archive: it is all that is in it.

    The next start would draw another, and leave the reader of a commit to guess whose it was.
    """
    if read_text(spark, f"{checkpoint}/{ID_FILE}") is None:
        _log.warning("the archive's checkpoint was removed; it is written again", folder=checkpoint)
        write_text(spark, f"{checkpoint}/{ID_FILE}", identity)
