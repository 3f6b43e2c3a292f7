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
