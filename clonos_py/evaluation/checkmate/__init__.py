"""The evaluation of CheckMate (Siachamis et al., ICDE 2024): its grid of runs, the results file, tables and plots."""
