"""Exact fair optima of finite models, and a proof of how far from optimal they can be at most. A map of the room:

momdp: finite models · examples: some to try · chain, linear: what a policy's Markov chain does, and its equations
scalar: the best policy for one user · oracle: for weights on several, with a bound · policies: what any policy brings
columns, master: policies one by one, how often to draw which · lp: all at once, for small models; equivalent: units
solver: the fair optimum from all of these · proofs: what is certified of it · bounds: what discounting costs
"""
