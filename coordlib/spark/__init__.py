"""What every Spark query of coordlib needs, the job's and those of members."""
