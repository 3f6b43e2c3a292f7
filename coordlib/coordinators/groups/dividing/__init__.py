"""Who gets which partition: by assignors in clients, by strategies in the job."""
