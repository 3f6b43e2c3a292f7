"""Members of consumer groups, classic and server-assigned, and consumers around them."""
