"""Any database with a client that follows the DB-API of Python (PEP 249): a sink and a bounded source."""
