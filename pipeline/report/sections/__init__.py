"""The sections of the page in their order, one file each. They give the content; the template gives the looks."""
