"""Settings shared by every test."""
