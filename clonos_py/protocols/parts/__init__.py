"""Parts that protocols are composed of. None of them belongs to one protocol."""
