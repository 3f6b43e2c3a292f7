"""What all clients are made of: transport, readers, drivers, fence, requests."""
