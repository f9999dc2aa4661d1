"""Makes Physical-AI training faster without touching the model's source."""
