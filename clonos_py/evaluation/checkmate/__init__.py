"""The evaluation of CheckMate (Siachamis et al., ICDE 2024): the results file, tables and plots."""
