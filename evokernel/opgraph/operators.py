"""Owns what is known about each operator: its kind, and whether it moves or only re-labels data."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


POINTWISE = _names(
    "abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not "
    "bitwise_or bitwise_xor ceil celu clamp copysign cos cosh deg2rad digamma div elu eq erf "
    "erfc erfinv exp exp2 expm1 float_power floor floor_divide fmax fmin fmod frac ge gelu "
    "gt hardshrink hardsigmoid hardswish heaviside hypot isfinite isinf isnan le leaky_relu "
    "lerp lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not "
    "logical_or logical_xor logit log_sigmoid lt masked_fill maximum minimum mish mul "
    "nan_to_num ne neg polar pow prelu reciprocal relu remainder round rsqrt selu sgn "
    "sigmoid sign signbit silu sin sinc sinh softplus softshrink softsign sqrt sub tan tanh "
    "tanhshrink threshold to trunc where xlogy"
)
REDUCTION = _names(
    "sum mean prod any all amax amin max min argmax argmin nansum nanmean var std var_mean "
    "std_mean logsumexp linalg_vector_norm count_nonzero median nanmedian aminmax dist trace"
)
SOFTMAX = frozenset({"softmax", "log_softmax", "softmin"})
NORMALIZATION = _names(
    "layer_norm rms_norm group_norm batch_norm instance_norm local_response_norm "
    "cosine_similarity native_layer_norm native_group_norm _native_batch_norm_legit_functional"
)
SCAN = _names("cumsum cumprod cummax cummin logcumsumexp")
LOSS = _names(
    "cross_entropy_loss nll_loss nll_loss_nd nll_loss2d mse_loss l1_loss smooth_l1_loss "
    "huber_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits "
    "hinge_embedding_loss cosine_embedding_loss triplet_margin_loss margin_ranking_loss "
    "poisson_nll_loss soft_margin_loss multi_margin_loss multilabel_margin_loss "
    "gaussian_nll_loss ctc_loss"
)
CONTRACTION = _names(
    "matmul mm bmm addmm addbmm baddbmm addmv mv dot vdot inner outer linear einsum bilinear "
    "tensordot chain_matmul linalg_multi_dot kron"
)
ATTENTION = frozenset({"scaled_dot_product_attention"})
RECURRENT = _names("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell")
CONVOLUTION = _names(
    "conv1d conv2d conv3d convolution _convolution conv_transpose1d conv_transpose2d "
    "conv_transpose3d conv_tbc"
)
POOLING = _names(
    "max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices "
    "max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
    "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
    "adaptive_max_pool3d lp_pool1d lp_pool2d"
)
VIEW = _names(
    "view reshape flatten unflatten squeeze unsqueeze transpose permute movedim expand "
    "select slice narrow diagonal split split_with_sizes chunk unbind as_strided "
    "view_as_real view_as_complex real imag unfold tensor_split hsplit vsplit broadcast_to "
    "numpy_T mH matrix_H"
)
"""Operators that re-label memory; that `reshape` may have to copy is not counted."""
PARTIAL = _names(
    "select slice narrow diagonal split split_with_sizes chunk unbind gather index "
    "index_select take take_along_dim embedding as_strided unfold tensor_split hsplit vsplit "
    "tril triu masked_select"
)
"""Operators that need not read all of their first argument."""
FACTORY = _names(
    "arange zeros ones full empty eye linspace logspace zeros_like ones_like full_like "
    "empty_like new_zeros new_ones new_full new_empty scalar_tensor tril_indices "
    "triu_indices"
)
"""Operators whose result depends on no tensor's values."""

MOVEMENT = _names(
    "cat stack hstack vstack contiguous pad constant_pad_nd roll flip fliplr flipud rot90 repeat "
    "tile copy repeat_interleave index index_select index_put gather scatter take take_along_dim "
    "embedding masked_select tril triu pixel_shuffle pixel_unshuffle select_scatter "
    "slice_scatter channel_shuffle broadcast_tensors meshgrid one_hot diag diag_embed"
)
"""Operators that only copy, or put a constant in some places."""

KINDS: dict[str, str] = {
    op: kind
    for kind, ops in {
        "pointwise": POINTWISE,
        "reduction": REDUCTION,
        "softmax": SOFTMAX,
        "normalization": NORMALIZATION,
        "scan": SCAN,
        "loss": LOSS,
        "contraction": CONTRACTION,
        "attention": ATTENTION,
        "recurrent": RECURRENT,
        "convolution": CONVOLUTION,
        "pooling": POOLING,
        "view": VIEW,
        "factory": FACTORY,
        "movement": MOVEMENT,
    }.items()
    for op in ops
}


def kind_of(op: str) -> str:
    """The operator's kind, or `other`."""
    return KINDS.get(op, "other")
