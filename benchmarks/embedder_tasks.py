"""Holds the labelled operators by which the embedder is checked, each in several spellings.

The label says how a kernel for the operator is organised, and was given by hand before the embedder
was tried. Every statement of a body assigns one new name, so that independent ones can change
places; the first of the three shapes is the one in which all spellings are embedded.
"""

from typing import NamedTuple


class Operator(NamedTuple):
    """One operator: what is held out together."""

    family: str
    name: str
    sizes: tuple[dict[str, int], ...]
    """Values of the capital letters; three sets."""
    inputs: dict[str, str]
    """Argument of `forward` to the expression that makes it."""
    spellings: tuple[str, ...]
    """Bodies of `forward`; lines before `---` belong to `__init__`."""


MATRIX = ({"N": 512, "D": 1024}, {"N": 8192, "D": 96}, {"N": 7, "D": 50000})
CUBE = ({"N": 16, "C": 64, "L": 512}, {"N": 4, "C": 300, "L": 100}, {"N": 128, "C": 8, "L": 4096})
IMAGE = (
    {"N": 8, "C": 32, "H": 64},
    {"N": 2, "C": 128, "H": 28},
    {"N": 32, "C": 16, "H": 112},
)
PRODUCT = (
    {"N": 256, "K": 512, "M": 384},
    {"N": 64, "K": 2048, "M": 1000},
    {"N": 1024, "K": 96, "M": 128},
)
HEADS = (
    {"B": 4, "H": 8, "L": 128, "D": 64},
    {"B": 1, "H": 16, "L": 512, "D": 32},
    {"B": 16, "H": 2, "L": 50, "D": 80},
)

X = {"x": "torch.randn(N, D)"}
XY = {"x": "torch.randn(N, D)", "y": "torch.randn(N, D)"}
XW = {"x": "torch.randn(N, D)", "w": "torch.randn(D)"}
XWB = {"x": "torch.randn(N, D)", "w": "torch.randn(D)", "b": "torch.randn(D)"}
CUBES = {"x": "torch.randn(N, C, L)"}
PICTURE = {"x": "torch.randn(N, C, H, H)"}
FACTORS = {"a": "torch.randn(N, K)", "b": "torch.randn(K, M)"}
LAYER = {"x": "torch.randn(N, K)", "w": "torch.randn(M, K)", "b": "torch.randn(M)"}
QKV = {name: "torch.randn(B, H, L, D)" for name in "qkv"}

OPERATORS = (
    # Element by element.
    Operator("elementwise", "gelu", MATRIX, X, (
        "return F.gelu(x)",
        "e = torch.erf(x * 0.70710678)\nh = x * 0.5\nreturn h * (1.0 + e)",
        "self.act = nn.GELU()\n---\nreturn self.act(x)",
        "p = x * 0.79788456\nq = 1 + 0.044715 * x * x\nh = 0.5 * x\nt = torch.tanh(p * q)\n"
        "return h * (1 + t)",
    )),
    Operator("elementwise", "swish", MATRIX, X, (
        "return F.silu(x)",
        "s = torch.sigmoid(x)\nreturn x * s",
        "d = 1 + torch.exp(-x)\nreturn x / d",
    )),
    Operator("elementwise", "hard_swish", MATRIX, X, (
        "return F.hardswish(x)",
        "h = torch.clamp(x + 3, 0, 6)\ns = x / 6\nreturn s * h",
        "self.act = nn.Hardswish()\n---\nreturn self.act(x)",
    )),
    Operator("elementwise", "scale_shift_relu", MATRIX, XWB, (
        "return torch.relu(x * w + b)",
        "return torch.addcmul(b, x, w).clamp(min=0)",
    )),
    Operator("elementwise", "gated", MATRIX, XY, (
        "g = F.silu(x)\nh = y * 2.0\nreturn g * h",
        "s = torch.sigmoid(x)\nh = y * 2.0\ng = x * s\nreturn g * h",
    )),
    # Softmax and its relatives.
    Operator("softmax", "softmax", MATRIX, X, (
        "return torch.softmax(x, dim=-1)",
        "self.soft = nn.Softmax(dim=1)\n---\nreturn self.soft(x)",
        "m = x.amax(dim=1, keepdim=True)\ne = torch.exp(x - m)\n"
        "return e / e.sum(dim=1, keepdim=True)",
        "return torch.exp(x - torch.logsumexp(x, dim=1, keepdim=True))",
    )),
    Operator("softmax", "log_softmax", MATRIX, X, (
        "return F.log_softmax(x, dim=-1)",
        "return x - torch.logsumexp(x, dim=1, keepdim=True)",
        "m = x.amax(dim=1, keepdim=True)\ns = x - m\n"
        "return s - torch.log(torch.exp(s).sum(dim=1, keepdim=True))",
    )),
    Operator("softmax", "masked_softmax", MATRIX, XY, (
        "s = x * 0.125\nm = y > 0\nreturn torch.softmax(s.masked_fill(m, -1e9), dim=-1)",
        "s = x * 0.125\nm = y > 0\nf = torch.where(m, -1e9, s)\nreturn F.softmax(f, 1)",
    )),
    Operator("softmax", "softmax_channels", CUBE, CUBES, (
        "return torch.softmax(x, dim=1)",
        "e = torch.exp(x - x.amax(dim=1, keepdim=True))\nreturn e / e.sum(dim=1, keepdim=True)",
    )),
    Operator("softmax", "softmin_scaled", MATRIX, XW, (
        "return F.softmin(x, dim=1) * w",
        "return torch.softmax(-x, dim=1) * w",
    )),
    # Normalisations.
    Operator("normalization", "layer_norm", MATRIX, XWB, (
        "return F.layer_norm(x, (D,), w, b)",
        "m = x.mean(dim=1, keepdim=True)\nv = x.var(dim=1, unbiased=False, keepdim=True)\n"
        "return (x - m) / torch.sqrt(v + 1e-5) * w + b",
        "c = x - x.mean(dim=1, keepdim=True)\nr = torch.rsqrt((c * c).mean(1, True) + 1e-5)\n"
        "return c * r * w + b",
        "self.norm = nn.LayerNorm(D)\n---\nreturn self.norm(x + 0.0 * w) * w + b",
    )),
    Operator("normalization", "rms_norm", MATRIX, XW, (
        "return F.rms_norm(x, (D,), w, 1e-6)",
        "r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)\nreturn x * r * w",
        "s = torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-6)\nreturn w * (x / s)",
    )),
    Operator("normalization", "l2_normalize", MATRIX, X, (
        "return F.normalize(x, dim=1)",
        "return x / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(1e-12)",
        "return x * torch.rsqrt((x * x).sum(dim=1, keepdim=True))",
    )),
    Operator("normalization", "residual_norm", MATRIX, XY | {"w": "torch.randn(D)"}, (
        "s = x + y\ng = w * 2.0\nreturn F.rms_norm(s, (D,), g, 1e-6)",
        "s = x + y\ng = w * 2.0\nr = torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-6)\n"
        "return s * r * g",
    )),
    Operator("normalization", "group_norm", CUBE, CUBES, (
        "return F.group_norm(x, 4)",
        "self.norm = nn.GroupNorm(4, C)\n---\nreturn self.norm(x)",
        "g = x.reshape(N, 4, -1)\nm = g.mean(-1, keepdim=True)\n"
        "v = g.var(-1, unbiased=False, keepdim=True)\n"
        "return ((g - m) / torch.sqrt(v + 1e-5)).reshape(N, C, L)",
    )),
    Operator("normalization", "batch_norm", IMAGE, PICTURE, (
        "self.norm = nn.BatchNorm2d(C)\n---\nreturn self.norm(x)",
        "return F.batch_norm(x, None, None, training=True)",
        "m = x.mean((0, 2, 3), keepdim=True)\n"
        "v = x.var((0, 2, 3), unbiased=False, keepdim=True)\nreturn (x - m) / torch.sqrt(v + 1e-5)",
    )),
    # Reductions, along rows and across them.
    Operator("reduction", "row_mean", MATRIX, X, (
        "return x.mean(dim=1)",
        "return x.sum(dim=1) / D",
        "return torch.mean(x, dim=-1, keepdim=True)",
    )),
    Operator("reduction", "column_sum", MATRIX, X, (
        "return x.sum(dim=0)",
        "return torch.sum(x.t(), dim=1)",
        "return torch.einsum('nd->d', x)",
    )),
    Operator("reduction", "channel_max", CUBE, CUBES, (
        "return x.amax(dim=1)",
        "return torch.max(x, dim=1)[0]",
        "return x.transpose(1, 2).max(dim=-1).values",
    )),
    Operator("reduction", "sum_of_squares", MATRIX, X, (
        "return (x * x).sum(dim=1)",
        "return x.pow(2).sum(-1)",
        "return x.square().sum(1)",
    )),
    Operator("reduction", "variance", CUBE, CUBES, (
        "return x.var(dim=(1, 2), unbiased=False)",
        "return torch.var(x.flatten(1), dim=1, correction=0)",
    )),
    Operator("reduction", "norm", MATRIX, X, (
        "return torch.linalg.vector_norm(x, dim=1)",
        "return torch.sqrt((x * x).sum(dim=1))",
    )),
    Operator("reduction", "logsumexp", MATRIX, X, (
        "return torch.logsumexp(x, dim=1)",
        "m = x.amax(1)\ne = torch.exp(x - m[:, None])\nreturn m + torch.log(e.sum(1))",
    )),
    # Scans.
    Operator("scan", "cumsum", MATRIX, X, (
        "return torch.cumsum(x, dim=1)",
        "return x.cumsum(-1)",
    )),
    Operator("scan", "cumprod", MATRIX, X, (
        "return torch.cumprod(x, dim=1)",
        "return x.cumprod(-1)",
    )),
    Operator("scan", "reverse_cumsum", MATRIX, X, (
        "return x.flip(1).cumsum(1).flip(1)",
        "return torch.flip(torch.cumsum(torch.flip(x, [1]), dim=1), [1])",
    )),
    Operator("scan", "masked_cumsum", MATRIX, XY, (
        "m = y > 0\ns = x * 2.0\nreturn torch.cumsum(s * m, dim=1)",
        "m = y > 0\ns = x * 2.0\nreturn s.masked_fill(~m, 0.0).cumsum(1)",
    )),
    Operator("scan", "running_max", MATRIX, X, (
        "return torch.cummax(x, dim=1)[0]",
        "return x.cummax(-1).values",
    )),
    # Losses.
    Operator("loss", "mse", MATRIX, XY, (
        "return F.mse_loss(x, y)",
        "d = x - y\nreturn (d * d).mean()",
        "return torch.mean((x - y).pow(2))",
        "self.loss = nn.MSELoss()\n---\nreturn self.loss(x, y)",
    )),
    Operator("loss", "huber", MATRIX, XY, (
        "return F.smooth_l1_loss(x, y)",
        "d = (x - y).abs()\nreturn torch.where(d < 1, 0.5 * d * d, d - 0.5).mean()",
    )),
    Operator("loss", "kl_div", MATRIX, XY, (
        "p = F.log_softmax(x, 1)\nq = F.softmax(y, 1)\n"
        "return F.kl_div(p, q, reduction='batchmean')",
        "p = F.log_softmax(x, 1)\nr = F.log_softmax(y, 1)\nreturn (r.exp() * (r - p)).sum() / N",
    )),
    Operator("loss", "cross_entropy", MATRIX,
             X | {"t": "torch.randint(0, D, (N,))"}, (
        "return F.cross_entropy(x, t)",
        "return F.nll_loss(torch.log_softmax(x, dim=1), t)",
        "p = x.gather(1, t[:, None]).squeeze(1)\nz = torch.logsumexp(x, 1)\nreturn (z - p).mean()",
    )),
    Operator("loss", "hinge", MATRIX, XY, (
        "return torch.mean(torch.clamp(1 - x * y, min=0))",
        "return F.relu(1 - y * x).mean()",
    )),
    Operator("loss", "binary_cross_entropy", MATRIX, XY, (
        "t = torch.sigmoid(y)\nreturn F.binary_cross_entropy_with_logits(x, t)",
        "t = torch.sigmoid(y)\nh = x.clamp(min=0)\nl = torch.log1p(torch.exp(-x.abs()))\n"
        "return (h - x * t + l).mean()",
    )),
    # Contractions, alone and with what stands around them.
    Operator("contraction", "matmul", PRODUCT, FACTORS, (
        "return a @ b",
        "return torch.mm(a, b)",
        "return torch.einsum('nk,km->nm', a, b)",
        "return F.linear(a, b.t())",
    )),
    Operator("contraction", "transposed_matmul", PRODUCT,
             {"a": "torch.randn(K, N)", "b": "torch.randn(M, K)"}, (
        "return a.t() @ b.t()",
        "return torch.matmul(a.T, b.T)",
        "return torch.einsum('kn,mk->nm', a, b)",
    )),
    Operator("contraction", "batched_matmul", PRODUCT,
             {"a": "torch.randn(16, N, K)", "b": "torch.randn(16, K, M)"}, (
        "return torch.bmm(a, b)",
        "return a @ b",
        "return torch.einsum('bnk,bkm->bnm', a, b)",
    )),
    Operator("contraction", "linear_gelu", PRODUCT, LAYER, (
        "return F.gelu(F.linear(x, w, b))",
        "y = x @ w.t()\nreturn F.gelu(y + b)",
        "return F.gelu(torch.addmm(b, x, w.t()))",
    )),
    Operator("contraction", "mlp", PRODUCT, {"x": "torch.randn(N, K)"}, (
        "self.up = nn.Linear(K, M)\nself.down = nn.Linear(M, K)\n---\n"
        "return self.down(torch.relu(self.up(x)))",
        "self.layers = nn.Sequential(nn.Linear(K, M), nn.ReLU(), nn.Linear(M, K))\n---\n"
        "return self.layers(x)",
    )),
    Operator("contraction", "matvec", PRODUCT, {"a": "torch.randn(N, K)", "v": "torch.randn(K)"}, (
        "return torch.mv(a, v)",
        "return a @ v",
        "return (a @ v[:, None]).squeeze(1)",
    )),
    Operator("contraction", "norm_linear", PRODUCT, LAYER, (
        "return F.linear(F.layer_norm(x, (K,)), w, b)",
        "n = F.layer_norm(x, (K,))\nt = w.t()\nreturn n @ t + b",
    )),
    Operator("contraction", "linear_logsumexp", PRODUCT, LAYER, (
        "return torch.logsumexp(F.linear(x, w, b), dim=1)",
        "y = torch.addmm(b, x, w.t())\nreturn y.logsumexp(1)",
    )),
    # Attention.
    Operator("attention", "attention", HEADS, QKV, (
        "return F.scaled_dot_product_attention(q, k, v)",
        "s = q @ k.transpose(-2, -1) * D ** -0.5\nreturn torch.softmax(s, dim=-1) @ v",
        "s = torch.einsum('bhld,bhmd->bhlm', q, k) / D ** 0.5\np = torch.softmax(s, -1)\n"
        "return torch.einsum('bhlm,bhmd->bhld', p, v)",
    )),
    Operator("attention", "causal_attention", HEADS, QKV, (
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "s = q @ k.transpose(-2, -1) * D ** -0.5\nm = torch.ones(L, L).triu(1).bool()\n"
        "return torch.softmax(s.masked_fill(m, -1e9), -1) @ v",
    )),
    Operator("attention", "biased_attention", HEADS, QKV | {"m": "torch.randn(L, L)"}, (
        "b = m * 2.0\ns = q @ k.mT * 0.125\nreturn torch.softmax(s + b, -1) @ v",
        "b = m * 2.0\nreturn F.scaled_dot_product_attention(q, k, v, attn_mask=b, scale=0.125)",
    )),
    Operator("attention", "self_attention", PRODUCT,
             {"x": "torch.randn(4, N, K)"}, (
        "self.q = nn.Linear(K, 64)\nself.k = nn.Linear(K, 64)\nself.v = nn.Linear(K, 64)\n---\n"
        "a = self.q(x)\nb = self.k(x)\nc = self.v(x)\n"
        "return torch.softmax(a @ b.mT / 8, dim=-1) @ c",
        "self.q = nn.Linear(K, 64)\nself.k = nn.Linear(K, 64)\nself.v = nn.Linear(K, 64)\n---\n"
        "a = self.q(x)\nb = self.k(x)\nc = self.v(x)\n"
        "return F.scaled_dot_product_attention(a, b, c)",
    )),
    # Convolutions.
    Operator("convolution", "conv2d", IMAGE, PICTURE, (
        "self.conv = nn.Conv2d(C, 64, 3, padding=1)\n---\nreturn self.conv(x)",
        "self.w = nn.Parameter(torch.randn(64, C, 3, 3))\nself.b = nn.Parameter(torch.randn(64))\n"
        "---\nreturn F.conv2d(x, self.w, self.b, padding=1)",
    )),
    Operator("convolution", "conv_bias_relu", IMAGE, PICTURE, (
        "self.conv = nn.Conv2d(C, 32, 3, bias=False)\n"
        "self.b = nn.Parameter(torch.randn(32, 1, 1))\n---\n"
        "return torch.relu(self.conv(x) + self.b)",
        "self.conv = nn.Conv2d(C, 32, 3)\n---\nreturn F.relu(self.conv(x))",
    )),
    Operator("convolution", "depthwise", IMAGE, PICTURE, (
        "self.conv = nn.Conv2d(C, C, 3, groups=C)\n---\nreturn self.conv(x)",
        "self.w = nn.Parameter(torch.randn(C, 1, 3, 3))\n---\nreturn F.conv2d(x, self.w, groups=C)",
    )),
    Operator("convolution", "conv1d", CUBE, CUBES, (
        "self.conv = nn.Conv1d(C, 32, 5)\n---\nreturn self.conv(x)",
        "self.w = nn.Parameter(torch.randn(32, C, 5))\n---\nreturn F.conv1d(x, self.w)",
    )),
    Operator("convolution", "conv_batch_norm", IMAGE, PICTURE, (
        "self.conv = nn.Conv2d(C, 32, 3)\nself.norm = nn.BatchNorm2d(32)\n---\n"
        "return F.relu(self.norm(self.conv(x)))",
    )),
    # Pooling.
    Operator("pooling", "max_pool2d", IMAGE, PICTURE, (
        "return F.max_pool2d(x, 2)",
        "self.pool = nn.MaxPool2d(2)\n---\nreturn self.pool(x)",
        "r = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))\nreturn r.amax((3, 5))",
    )),
    Operator("pooling", "avg_pool2d", IMAGE, PICTURE, (
        "return F.avg_pool2d(x, 3, stride=2)",
        "self.pool = nn.AvgPool2d(3, 2)\n---\nreturn self.pool(x)",
        "return x.unfold(2, 3, 2).unfold(3, 3, 2).mean((-2, -1))",
    )),
    Operator("pooling", "avg_pool1d", CUBE, CUBES, (
        "return F.avg_pool1d(x, 4)",
        "self.pool = nn.AvgPool1d(4)\n---\nreturn self.pool(x)",
        "return x.unfold(2, 4, 4).mean(-1)",
    )),
    Operator("pooling", "adaptive_max_pool", IMAGE, PICTURE, (
        "return F.adaptive_max_pool2d(x, 4)",
    )),
    Operator("pooling", "max_pool1d", CUBE, CUBES, (
        "return F.max_pool1d(x, 3, 2)",
        "self.pool = nn.MaxPool1d(3, 2)\n---\nreturn self.pool(x)",
        "return x.unfold(2, 3, 2).amax(-1)",
    )),
)  # fmt: skip
