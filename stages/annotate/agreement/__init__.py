"""Inter-rater agreement with intervals from a bootstrap over groups; imports only numpy and pyarrow."""
