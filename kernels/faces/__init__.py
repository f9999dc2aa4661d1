"""The operators under the names and contracts that other libraries call; imports none of them."""
