"""The one line of a failed query: the reason, and not what Spark has put in front of it."""

import pytest

from coordlib.spark_reasons import LENGTH_MAX, reason_of

PROXY = """[STREAM_FAILED] Query [id = 8a, runId = 1b] terminated with exception: An exception was \
raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/pyspark/sql/utils.py", line 167, in call
    raise e
{raised}

	at py4j.Protocol.getReturnValue(Protocol.java:476)
	at java.base/java.lang.Thread.run(Thread.java:840)
"""
JAVA = """An error occurred while calling o5176.start.
: java.io.IOException: mkdir of file:/lake/folder failed
	at org.apache.hadoop.fs.FileSystem.primitiveMkdir(FileSystem.java:1357)
"""
ANALYSIS = """pyspark.errors.exceptions.captured.AnalysisException: [DELTA_METADATA_MISMATCH] A \
schema mismatch detected when writing to the Delta table.
To enable schema migration, please set: '.option("mergeSchema", "true")'.

Table schema:
root"""
CHAINED = """ValueError: the first one

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/user.py", line 1, in each
    raise KeyError("the user's own") from None
KeyError: "the user's own\""""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROXY.format(raised="ValueError: a bad row"), "ValueError: a bad row"),
        (PROXY.format(raised="ValueError"), "ValueError"),
        (
            PROXY.format(raised=ANALYSIS),
            ANALYSIS.partition("\n\n")[0].replace("\n", " "),
        ),
        (
            PROXY.format(raised="coordlib.errors.CoordError: What.\nwhere\nDo this."),
            "coordlib.errors.CoordError: What. where Do this.",
        ),
        (PROXY.format(raised=CHAINED), """KeyError: "the user's own\""""),
        (
            PROXY.format(raised="py4j.protocol.Py4JJavaError: " + JAVA),
            "java.io.IOException: mkdir of file:/lake/folder failed",
        ),
        (JAVA, "java.io.IOException: mkdir of file:/lake/folder failed"),
        ("[KAFKA_DATA_LOSS] Some data\n\tat org.apache", "[KAFKA_DATA_LOSS] Some data"),
        ("An exception was raised. Return Message: nothing", "An exception was raised. "
         "Return Message: nothing"),
        ("", "Exception"),
    ],
)  # fmt: skip
def test_the_reason_of_a_failure(text: str, reason: str) -> None:
    """As pyspark 4.2 and py4j write them."""
    assert reason_of(Exception(text)) == reason


def test_a_reason_is_bounded() -> None:
    """A plan of Spark's goes on for pages, in one line."""
    assert len(reason_of(ValueError("x" * 10_000))) == LENGTH_MAX
