"""`coord cluster`: worker fleets."""
