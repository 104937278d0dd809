package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/pfar/pfar/units/chores"
)

// TestProgramFiles wants each program's configuration to be what that program reads, by HTTP and by a command.
func TestProgramFiles(t *testing.T) {
	web := configured{Type: "http", URL: "http://127.0.0.1:7417/mcp/desk", Headers: map[string]string{"Authorization": "Bearer TOKEN"}}
	own := configured{Command: `/opt/a "b"\c`, Args: []string{"connect", "--client", "desk"}, Env: map[string]string{"PFAR_RUN_DIR": "/run/pfar"}}
	for name, want := range map[string][2]string{
		"claude":         {`{"mcpServers":{"pfar":{"headers":{"Authorization":"Bearer TOKEN"},"type":"http","url":"http://127.0.0.1:7417/mcp/desk"}}}`, `{"mcpServers":{"pfar":{"args":["connect","--client","desk"],"command":"/opt/a \"b\"\\c","env":{"PFAR_RUN_DIR":"/run/pfar"}}}}`},
		"claude-desktop": {"", `{"mcpServers":{"pfar":{"args":["connect","--client","desk"],"command":"/opt/a \"b\"\\c","env":{"PFAR_RUN_DIR":"/run/pfar"}}}}`},
		"cursor":         {`{"mcpServers":{"pfar":{"headers":{"Authorization":"Bearer TOKEN"},"type":"http","url":"http://127.0.0.1:7417/mcp/desk"}}}`, `{"mcpServers":{"pfar":{"args":["connect","--client","desk"],"command":"/opt/a \"b\"\\c","env":{"PFAR_RUN_DIR":"/run/pfar"}}}}`},
		"vscode":         {`{"servers":{"pfar":{"headers":{"Authorization":"Bearer TOKEN"},"type":"http","url":"http://127.0.0.1:7417/mcp/desk"}}}`, `{"servers":{"pfar":{"args":["connect","--client","desk"],"command":"/opt/a \"b\"\\c","env":{"PFAR_RUN_DIR":"/run/pfar"},"type":"stdio"}}}`},
		"zed":            {`{"context_servers":{"pfar":{"headers":{"Authorization":"Bearer TOKEN"},"url":"http://127.0.0.1:7417/mcp/desk"}}}`, `{"context_servers":{"pfar":{"args":["connect","--client","desk"],"command":"/opt/a \"b\"\\c","env":{"PFAR_RUN_DIR":"/run/pfar"}}}}`},
		"gemini": {
			`{"mcpServers":{"pfar":{` +
				`"headers":{"Authorization":"Bearer TOKEN"},"httpUrl":"http://127.0.0.1:7417/mcp/desk"}}}`,
			`{"mcpServers":{"pfar":{"args":["connect","--client","desk"],` +
				`"command":"/opt/a \"b\"\\c","env":{"PFAR_RUN_DIR":"/run/pfar"}}}}`,
		},
		"windsurf": {
			`{"mcpServers":{"pfar":{` +
				`"headers":{"Authorization":"Bearer TOKEN"},"serverUrl":"http://127.0.0.1:7417/mcp/desk"}}}`,
			`{"mcpServers":{"pfar":{"args":["connect","--client","desk"],` +
				`"command":"/opt/a \"b\"\\c","env":{"PFAR_RUN_DIR":"/run/pfar"}}}}`,
		},
		"opencode": {
			`{"mcp":{"servers":{"pfar":{"headers":{"Authorization":"Bearer TOKEN"},` +
				`"type":"remote","url":"http://127.0.0.1:7417/mcp/desk"}}}}`,
			`{"mcp":{"servers":{"pfar":{"command":["/opt/a \"b\"\\c","connect","--client","desk"],` +
				`"environment":{"PFAR_RUN_DIR":"/run/pfar"},"type":"local"}}}}`,
		},
		"codex": {`{"mcp_servers":{"pfar":{"http_headers":{"Authorization":"Bearer TOKEN"},"url":"http://127.0.0.1:7417/mcp/desk"}}}`, `{"mcp_servers":{"pfar":{"args":["connect","--client","desk"],"command":"/opt/a \"b\"\\c","env":{"PFAR_RUN_DIR":"/run/pfar"}}}}`},
	} {
		p, ok := programs[name]
		if !ok || p.file == "" || chores.Programs[name] == nil || p.stdio != (want[0] == "") {
			t.Fatalf("%s: %+v", name, p)
		}
		for i, entry := range []configured{web, own} {
			text, err := p.write(entry)
			var read any
			if name == "codex" {
				err = toml.Unmarshal([]byte(text), &read)
			} else if err == nil {
				err = json.Unmarshal([]byte(text), &read)
			}
			got, _ := json.Marshal(read)
			if want[i] != "" && (err != nil || string(got) != want[i]) {
				t.Errorf("%s: %s, %v, want %s", name, got, err, want[i])
			}
		}
	}
	if len(programs) != 10 || len(chores.Programs) != 10 || !strings.Contains(strings.Join(programNames(), " "), "codex") {
		t.Errorf("programs %q", programNames())
	}
	if got := tomlString("a\nb\"\u007f"); got != `"a\u000Ab\"\u007F"` {
		t.Errorf("a string of TOML: %s", got)
	}
}

// TestGooseFile wants the extension of goose in YAML, whatever stands in its values.
func TestGooseFile(t *testing.T) {
	web := configured{URL: "http://127.0.0.1:7417/mcp/desk", Headers: map[string]string{"Authorization": "Bearer TOKEN"}}
	own := configured{Command: `/opt/a "b"\c`, Args: []string{"connect", "--client", "desk"}}
	own.Env = map[string]string{"PFAR_RUN_DIR": "/run/a: #b"}
	const head = "extensions:\n  pfar:\n    enabled: true\n    name: \"pfar\"\n"
	for _, tt := range []struct {
		entry configured
		want  string
	}{
		{web, `    type: "streamable_http"
    uri: "http://127.0.0.1:7417/mcp/desk"
    headers: {"Authorization":"Bearer TOKEN"}`},
		{own, `    type: "stdio"
    cmd: "/opt/a \"b\"\\c"
    args: ["connect","--client","desk"]
    envs: {"PFAR_RUN_DIR":"/run/a: #b"}`},
	} {
		if got, err := programs["goose"].write(tt.entry); err != nil || got != head+tt.want {
			t.Errorf("%v\n%s", err, got)
		}
	}
}
