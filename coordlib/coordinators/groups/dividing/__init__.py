"""How partitions are divided: by assignors in clients, by strategies in the job."""
