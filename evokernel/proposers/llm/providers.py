"""Owns what is known of model providers without litellm: their names and where their keys lie."""

KEYS: dict[str, tuple[str, ...]] = {
    "ai21": ("AI21_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "azure": ("AZURE_API_KEY", "AZURE_AD_TOKEN"),
    "azure_ai": ("AZURE_AI_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "codestral": ("CODESTRAL_API_KEY",),
    "cohere": ("COHERE_API_KEY",),
    "cohere_chat": ("COHERE_API_KEY",),
    "dashscope": ("DASHSCOPE_API_KEY",),
    "deepinfra": ("DEEPINFRA_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "featherless_ai": ("FEATHERLESS_AI_API_KEY",),
    "fireworks_ai": ("FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY", "FIREWORKSAI_API_KEY"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "huggingface": ("HUGGINGFACE_API_KEY", "HF_TOKEN"),
    "mistral": ("MISTRAL_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "nebius": ("NEBIUS_API_KEY",),
    "novita": ("NOVITA_API_KEY",),
    "nvidia_nim": ("NVIDIA_NIM_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "replicate": ("REPLICATE_API_KEY", "REPLICATE_API_TOKEN"),
    "sambanova": ("SAMBANOVA_API_KEY",),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY", "TOGETHER_AI_API_KEY"),
    "volcengine": ("VOLCENGINE_API_KEY", "ARK_API_KEY"),
    "xai": ("XAI_API_KEY",),
}
"""Providers that take one key, and the environment variables of which one must hold it."""

LOCAL: tuple[str, ...] = (
    *("docker_model_runner", "hosted_vllm", "lemonade", "llamafile", "lm_studio", "ollama"),
    *("ollama_chat", "oobabooga", "vllm", "xinference"),
)
"""Servers of one's own: they need no key, and nobody is paid for their tokens."""

OPTIONAL_KEYS: dict[str, tuple[str, ...]] = {
    "hosted_vllm": ("HOSTED_VLLM_API_KEY",),
    "litellm_proxy": ("LITELLM_PROXY_API_KEY",),
    "lm_studio": ("LM_STUDIO_API_KEY",),
    "ollama": ("OLLAMA_API_KEY",),
    "ollama_chat": ("OLLAMA_API_KEY",),
}
"""Servers that may ask for a key, and the variables that hold it then."""

ADDRESSES: dict[str, tuple[str, ...]] = {
    "azure": ("AZURE_API_BASE",),
    "hosted_vllm": ("HOSTED_VLLM_API_BASE",),
    "lm_studio": ("LM_STUDIO_API_BASE",),
    "xinference": ("XINFERENCE_API_BASE",),
}
"""Providers without an address of their own, and the variables that may hold one."""

OPENAI_ADDRESSES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
"""Variables by which another server takes the place of OpenAI's own."""

_OTHERS = """
a2a a2a_agent abliteration ai21_chat aiand aiml aiohttp_openai amazon_nova anthropic_text
apertis assemblyai auto_router aws_polly aws_textract azure_speech azure_text baseten bedrock
bedrock_mantle bespoke bigmodel black_forest_labs bytez charity_engine chatgpt chutes clarifai
clf_ai_gateway cloudflare cognition cometapi compactifai coralbricks cortecs cursor custom
custom_openai darkbloom databricks databricks_agent datarobot deepgram dotprompt edenai
elevenlabs empiriolabs empower eu_jev fal_ai friendliai galadriel gdc gigachat github
github_copilot gradient_ai helicone heroku hostinger_router humanloop hyperbolic inception
inferenceapis infinity jina_ai kyma lambda_ai langflow langfuse langgraph laya libertai
litellm_agent litellm_proxy manus maritalk meta meta_llama microsoft_365_copilot milvus minimax
modelscope mongodb morph nace nadir nano-gpt neosantara nlp_cloud nscale nvidia_riva oci
openai_like opencode_go openinfer opensearch ovhcloud parallel_ai parasail petals pg_vector
pinstripes poe predibase prism publicai qwen_ai_platform qwencloud ragflow recraft reducto
refuseless reka runwayml s3_vectors sagemaker sagemaker_chat sagemaker_nova sail sap scaledown
scaleway scx-ai snowflake soniox stability strands_decider streamlake synthetic tencent
tensormesh text-completion-codestral text-completion-inception text-completion-openai topaz
transcribe triton typesafe v0 valkey vercel_ai_gateway vertex_ai vertex_ai_beta voyage wally
wandb watsonx watsonx_text xiaomi_mimo zai zerogpu
"""
OTHERS = frozenset(_OTHERS.split())
"""Other names that litellm knows; their credentials (a cloud's account, say) are its to find."""

PROVIDERS = frozenset({*KEYS, *LOCAL, *OTHERS})

BY_PREFIX = {"gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}
BY_PREFIX |= {"claude": "anthropic", "gemini": "gemini", "grok": "xai", "deepseek": "deepseek"}
BY_PREFIX |= {"mistral": "mistral", "codestral": "codestral", "command": "cohere"}
"""Whose models begin like this, to suggest the full name."""
