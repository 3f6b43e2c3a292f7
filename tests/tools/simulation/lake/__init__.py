"""Members in simulated worlds whose offsets one commit of a Delta table decides."""
