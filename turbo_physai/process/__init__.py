"""What this process is: its place in a launch, its rank, and what its environment asks of it."""
