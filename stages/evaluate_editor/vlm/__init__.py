"""Judging by a vision-language model: questions, calls, replies and what is kept of them."""
