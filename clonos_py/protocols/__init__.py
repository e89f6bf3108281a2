"""The checkpoint protocols. Each is one folder with its sides in the coordinator, the tasks and the links."""
