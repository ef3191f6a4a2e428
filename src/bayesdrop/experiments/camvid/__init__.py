"""What the experiments on CamVid share: frames, training from shared weights, scores, panels of pictures.

A network without dropout is trained once for every seed; every method goes on from its weights with its own
noise. The statistics of BatchNorm stand still from there on, in all methods alike: rows of a minibatch then
do not meet, so that learned rates get the gradient of each row's own loss, and a draw, the single pass and
training all norm alike. Weights and biases of BatchNorm are trained on.
"""
