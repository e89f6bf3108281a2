"""PostgreSQL: a sink of rows and of tables, and a source that follows the changes of a table."""
