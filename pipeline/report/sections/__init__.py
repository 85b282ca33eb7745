"""The sections of the page in their order, one file each: what they tell, not how it looks."""
