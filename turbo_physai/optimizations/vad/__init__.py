"""VAD: its targets. BEVFormer's replacements take their place."""
