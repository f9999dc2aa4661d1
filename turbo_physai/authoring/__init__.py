"""Tools for those who write Groups and configs; nothing of a training imports them."""
