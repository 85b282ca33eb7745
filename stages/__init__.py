"""The steps of the flow, one folder each, and the data contracts. Only this package imports Ray."""
