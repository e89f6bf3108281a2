"""What runs inside a task: stateless operators, windows, joins, tables and process functions."""

if __name__ == "operators":
    raise ImportError("import clonos_py.operators instead of operators: the folder at the top is reached through the package")
