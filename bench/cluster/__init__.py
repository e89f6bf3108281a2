"""A simulated cluster, where work has a price (E12): a plan runs in virtual time on more machines than there are."""
