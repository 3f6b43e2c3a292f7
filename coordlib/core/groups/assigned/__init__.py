"""Server-assigned groups (seed 000): the coordinator divides, members say what they want."""
