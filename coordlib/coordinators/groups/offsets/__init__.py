"""What every kind of group does alike: keep offsets, forget them, be found and be deleted."""
