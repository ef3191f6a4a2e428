"""What the experiments on CamVid share: frames, training from shared weights, scores, panels of pictures.

A network without dropout is trained once for every seed; every method goes on from its weights with its own
noise. From then on the statistics of BatchNorm are frozen, in all methods: no row of a minibatch then changes
another's output, so that learned rates get the gradient of each row's own loss, and draws, the single pass
and training all normalise in the same way. Weights and biases of BatchNorm are trained on.
"""
