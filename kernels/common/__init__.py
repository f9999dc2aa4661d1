"""What operators share."""
