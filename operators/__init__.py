"""The operators that run inside tasks: stateless operators, windows, joins, tables and process functions."""

if __name__ == "operators":
    raise ImportError("import clonos_py.operators: the folder operators at the top is reached through the package")
