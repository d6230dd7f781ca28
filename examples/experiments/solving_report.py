def draw_figures(results, where): pass
