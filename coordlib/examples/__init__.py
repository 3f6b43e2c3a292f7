"""Small programs that show what can be done with the client. Each can be started by its name."""
