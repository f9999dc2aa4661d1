"""UniAD: its targets. BEVFormer's replacements take their place."""
