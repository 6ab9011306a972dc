"""A model's name, address and key are checked without litellm; keys never show."""

import subprocess
import sys

import pytest

from evokernel.cli import main
from evokernel.config import ModelConfig
from evokernel.errors import ConfigError
from evokernel.proposers.llm.access import access
from evokernel.proposers.llm.scrubbing import scrubbed, without_keys

LOCAL = "http://127.0.0.1:8000/v1"


def test_hosted_model_takes_its_usual_key(monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "secret-of-google")
    found = access("gemini/gemini-2.5-pro", ModelConfig())
    assert (found.model, found.key_env) == ("gemini/gemini-2.5-pro", "GOOGLE_API_KEY")
    assert found.key() == "secret-of-google"
    assert "secret" not in repr(found)


def test_key_of_another_name(monkeypatch):
    monkeypatch.setenv("TEAM_KEY", "secret-of-the-team")
    found = access("openai/gpt-5", ModelConfig(api_key_env="TEAM_KEY"))
    assert found.key() == "secret-of-the-team"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("qwen3-coder", "openai/qwen3-coder"),
        ("Qwen/Qwen3-Coder-30B", "openai/Qwen/Qwen3-Coder-30B"),
        ("openai/local", "openai/local"),
        ("hosted_vllm/Qwen/Qwen3", "hosted_vllm/Qwen/Qwen3"),
    ],
)
def test_server_of_ones_own_needs_no_key(name, model):
    found = access(name, ModelConfig(base_url=f"{LOCAL}/"))
    assert (found.model, found.base_url, found.key_env) == (model, LOCAL, None)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("hosted_vllm/Qwen/Qwen3", "HOSTED_VLLM_API_KEY"),
        ("lm_studio/qwen", "LM_STUDIO_API_KEY"),
        ("ollama/llama3", "OLLAMA_API_KEY"),
        ("litellm_proxy/gpt", "LITELLM_PROXY_API_KEY"),
    ],
)
def test_server_of_ones_own_may_ask_for_a_key(name, variable, monkeypatch):
    found = access(name, ModelConfig(base_url=LOCAL))
    assert found.sent_key == (None if name.startswith("litellm") else "none")
    monkeypatch.setenv(variable, "secret-of-mine")
    found = access(name, ModelConfig(base_url=LOCAL))
    assert (found.key_env, found.sent_key) == (variable, "secret-of-mine")


def test_where_litellm_looks_for_keys_all_of_them_are_hidden(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "secret-of-aws")
    found = access("bedrock/anthropic.claude", ModelConfig())
    assert found.sent_key is None
    assert without_keys("it said secret-of-aws", found.secrets()) == "it said [key]"


def test_local_provider_needs_neither_key_nor_address():
    found = access("ollama/llama3", ModelConfig())
    assert (found.base_url, found.key_env, found.is_local) == (None, None, True)


def test_address_of_openai_may_lie_in_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", LOCAL)
    assert access("openai/local", ModelConfig()).base_url == LOCAL


def test_cloud_accounts_are_left_to_litellm():
    assert access("bedrock/anthropic.claude", ModelConfig()).key_env is None


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("opnai/gpt-5", {}, ["no provider `opnai`", "Did you mean `openai`", "PROVIDER/NAME"]),
        ("claude-sonnet-4-5", {}, ["Did you mean `anthropic/claude-sonnet-4-5`?"]),
        ("something", {}, ["does not say whose model", "--base-url"]),
        ("openai/", {}, ["no model of it"]),
        ("openai/gpt-5", {}, ["`OPENAI_API_KEY`", "--api-key-env"]),
        ("openai/gpt-5", {"api_key_env": "TEAM_KEY"}, ["TEAM_KEY", "export TEAM_KEY=..."]),
        ("hosted_vllm/x", {}, ["needs the address", "HOSTED_VLLM_API_BASE"]),
        ("x", {"base_url": "localhost:8000"}, ["`--base-url` cannot be `localhost:8000`"]),
        ("x", {"base_url": "ftp://host/v1"}, ["http://localhost:8000/v1"]),
        ("x", {"base_url": "http://host:port/v1"}, ["cannot be"]),
        ("x", {"base_url": "http://"}, ["cannot be"]),
    ],
)
def test_refused_with_what_to_do(name, settings, words, monkeypatch):
    for variable in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "TEAM_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigError) as refused:
        access(name, ModelConfig.model_validate(settings))
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("url", ["http://me:hunter2@host/v1", "https://host/v1?key=hunter2"])
def test_secret_in_an_address_is_refused_and_not_repeated(url):
    with pytest.raises(ConfigError) as refused:
        access("x", ModelConfig(base_url=url))
    assert "hunter2" not in str(refused.value)
    assert "--api-key-env" in str(refused.value)


def test_key_is_taken_out_of_texts_and_code_is_left_alone():
    code = "def skip_connection_weights_and_more(): pass  # sk_abcdefghijklmnop"
    assert without_keys(f"{code} secret-key-1", ("secret-key-1",)) == f"{code} [key]"
    assert without_keys("x = 1", ("x",)) == "x = 1"
    said = scrubbed("Incorrect API key: sk-abc***************xyz, Bearer abcdefgh1234", ("none",))
    assert said == "Incorrect API key: [key], [key]"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--model", "openai/gpt-5"], "`OPENAI_API_KEY`"),
        (["--model", "opnai/gpt-5"], "Did you mean `openai`"),
        (["--model", "x", "--base-url", "nowhere"], "`--base-url` cannot be"),
        (["--usd", "1"], "`--usd` is about a model"),
        (["--model", "ollama/llama3", "--tokens", "0"], "--tokens"),
    ],
)
def test_command_refuses_before_the_task_is_looked_at(line, words, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    assert main(["run", "no-such-task", *line]) == 2
    assert words in capsys.readouterr().err.replace("\n", " ")


def test_neither_litellm_nor_torch_is_loaded_for_that(monkeypatch):
    code = """
import sys
from evokernel.cli import main
assert main(["run", "softmax", "--model", "openai/gpt-5"]) == 2
print([name for name in ("litellm", "torch", "openai", "sqlalchemy") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_missing_library_is_told_at_once():
    code = """
import sys
sys.modules["litellm"] = None
from evokernel.cli import main
assert main(["run", "softmax", "--model", "ollama/llama3"]) == 2
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'evokernel-agent[model]'" in done.stderr.replace("\n", " ")
