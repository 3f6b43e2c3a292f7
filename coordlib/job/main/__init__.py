"""The applications that Spark runs: `coord submit coordinate`, `archive` and `claims`."""
