"""From statistics to folded coefficients: one objective, one file per solver.

    minimise   sum_i w_i ||y_i - F(X_i)||^2  +  ridge ||T||_F^2

over layers with any number of heads.  ``ridge = 0`` means the minimiser of smallest ||T||_F,
the limit of ridge -> 0.  T is the symmetric tensor of the layer, so in the coordinates
theta = s * P (off-diagonal s = sqrt(1/2)) the penalty is plain ||theta||^2.
"""

from polyattn.solve.planning import Estimate, Plan, plan

__all__ = ["Estimate", "Plan", "plan"]
