package block

import "testing"

func TestSecretLooking(t *testing.T) {
	for _, s := range []string{
		"ntn_0123456789abc", "ghp_0123456789abcdef", "github_pat_11ABCDEFG0abcdefghij", "sk-0123456789",
		"sk-ant-api03-abcdefgh", "xoxb-123456789012-abc",
		"lin_api_abcdefghij", "sk_live_abcdefghij", "sk_test_abcdefghij", "SG.abcdefghijklmnop",
		"AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1NiJ9.e30.abc",
		"0123456789abcdef0123456789abcdef", "q7Zk2Xv9LmT4pRw8Nc3YbH6sJd5F",
		"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "-----BEGIN OPENSSH PRIVATE KEY-----",
	} {
		if !SecretLooking(s) {
			t.Errorf("%q passes for no secret", s)
		}
	}
	for _, s := range []string{
		"", "debug", "node", "sk-", "/home/user/.pfar/mcp-servers/notion/index.js",
		"@modelcontextprotocol/server-everything@2026.8.31", "https://api.notion.com/v1/pages",
		"my-long-production-cluster-name-2026", "2026-07-28T12:00:00Z", "550e8400-e29b-41d4-a716-446655440000",
		"en_US.UTF-8", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"--max-old-space-size=4096", "vault:notion_token", "00000000000000000000000000000000",
	} {
		if SecretLooking(s) {
			t.Errorf("%q passes for a secret", s)
		}
	}
}
