"""``open``: a plan changed by hand on a page, each change timed by the objective of searches."""
