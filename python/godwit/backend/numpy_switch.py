def route(blas): return "not routed"
def unroute(): pass
