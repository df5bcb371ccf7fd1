"""Pages to look at: HTML that needs no network, charts by Vega-Lite, tables to sort and filter."""
