"""The evaluation of CheckMate (Siachamis et al., ICDE 2024): which runs there are, the file of them, tables, plots."""
