"""Tools of those who work on coordlib: simulated worlds, benchmarks, mutants, fuzz, transcripts."""
