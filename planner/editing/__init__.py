"""``open``: a plan changed by hand on a page; searches' objective times each change."""
