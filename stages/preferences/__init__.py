"""Step preferences: ratings in, preference pairs out; and their export."""
