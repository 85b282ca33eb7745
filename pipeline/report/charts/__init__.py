"""Charts as inline SVG: no library, no script, one small file per kind of chart."""
