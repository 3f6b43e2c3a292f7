#!/usr/bin/env bash
# `coord submit` in a checkout, for whoever has no .venv/bin on the PATH. Takes every flag of spark-submit:
#
#   ./spark-submit.sh [--master M] [--conf k=v] [any spark-submit flag] coordinate|archive|claims|SCRIPT.py [arguments]
#
# Without --master it runs here (coordlib/conf/spark-local.conf). SIGTERM and SIGINT reach the Python driver, which stops
# between batches; its exit code is this script's (coordlib/exit_codes.py), and no process is left. For a cluster the Python
# environment is packed and shipped, and the driver runs here: --deploy-mode cluster is refused. The work is done by
# coordlib/local/submit.py; this finds the Python for it:
#   COORD_PYTHON        another interpreter than .venv/bin/python
#   COORD_SPARK_HOME    another Spark than that of the pyspark package
#   COORD_ENV_ARCHIVE   a ready environment archive, say on HDFS, instead of packing one
set -euo pipefail

# It may be called by a link. With CDPATH set, cd would print where it goes.
self="$(readlink -f "${BASH_SOURCE[0]}")"
root="$(unset CDPATH && cd "$(dirname "$self")" && pwd)"
python="${COORD_PYTHON:-$root/.venv/bin/python}"
if [ ! -x "$python" ]; then
  printf '%s\n' "There is no Python environment yet" "$python" "Run: make setup" >&2
  exit 2
fi
# exec: a signal to this script is a signal to the supervisor.
exec "$python" -m coordlib.local.submit "$@"
