"""What a server did: the last 15 minutes in detail, 30 days as sums, and who kept whom waiting."""
