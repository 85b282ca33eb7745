"""The packet for annotators, and the plan that assigns roles to groups."""
