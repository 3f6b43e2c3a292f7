"""Small files wherever Spark can reach: a local folder, HDFS, an object store."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
