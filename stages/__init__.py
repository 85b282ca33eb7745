"""The rooms: one module per step of the flow, the data contracts, and the only place that imports Ray."""
