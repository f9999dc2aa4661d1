"""BEVFormer: its targets, and what takes their place."""
