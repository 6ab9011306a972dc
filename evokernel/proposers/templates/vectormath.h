// Owns vectors of floats and their mathematics for generated kernels.
