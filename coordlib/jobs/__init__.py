"""The applications that Spark runs: `coord submit coordinate` and `coord submit archive`."""
