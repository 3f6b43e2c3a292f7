"""`coord`: the tree of commands, the stack, and what belongs to no protocol."""
