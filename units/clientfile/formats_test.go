package clientfile

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/chores"
)

// TestProgramFiles wants each program's configuration to be what that program reads, by HTTP and by a command.
func TestProgramFiles(t *testing.T) {
	web := Web("http://127.0.0.1:7417/mcp", "desk", "", Token)
	own := Command(`/opt/a "b"\c`, "/run/pfar", As("desk", "")...)
	const webs = `"headers":{"Authorization":"Bearer TOKEN"},"type":"http","url":"http://127.0.0.1:7417/mcp/desk"`
	const owns = `"args":["connect","--client","desk"],"command":"/opt/a \"b\"\\c","env":{"PFAR_RUN_DIR":"/run/pfar"}`
	for name, want := range map[string][2]string{
		"claude":         {`{"mcpServers":{"pfar":{` + webs + `}}}`, `{"mcpServers":{"pfar":{` + owns + `}}}`},
		"claude-desktop": {"", `{"mcpServers":{"pfar":{` + owns + `}}}`},
		"cursor":         {`{"mcpServers":{"pfar":{` + webs + `}}}`, `{"mcpServers":{"pfar":{` + owns + `}}}`},
		"vscode":         {`{"servers":{"pfar":{` + webs + `}}}`, `{"servers":{"pfar":{` + owns + `,"type":"stdio"}}}`},
		"zed": {
			`{"context_servers":{"pfar":{` +
				`"headers":{"Authorization":"Bearer TOKEN"},"url":"http://127.0.0.1:7417/mcp/desk"}}}`,
			`{"context_servers":{"pfar":{` + owns + `}}}`,
		},
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
		"codex": {
			`{"mcp_servers":{"pfar":{"http_headers":{"Authorization":"Bearer TOKEN"},` +
				`"url":"http://127.0.0.1:7417/mcp/desk"}}}`,
			`{"mcp_servers":{"pfar":{` + owns + `}}}`,
		},
	} {
		p, ok := programs[name]
		if !ok || p.File == "" || chores.Programs[name] == nil || p.Stdio != (want[0] == "") {
			t.Fatalf("%s: %+v", name, p)
		}
		for i, entry := range []Entry{web, own} {
			text, err := p.Write(entry)
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
	if len(programs) != 10 || len(chores.Programs) != 10 || !strings.Contains(strings.Join(Names(), " "), "codex") {
		t.Errorf("programs %q", Names())
	}
	if got := tomlString("a\nb\"\u007f"); got != `"a\u000Ab\"\u007F"` {
		t.Errorf("a string of TOML: %s", got)
	}
}

// TestEntries: a session stands in the address, or among the arguments. Who has no token comes by a command, other than
// the client that is built in for the endpoint's own token.
func TestEntries(t *testing.T) {
	if got := Web("http://x/mcp", "desk", "k7", "secret"); got.URL != "http://x/mcp/desk/k7" ||
		got.Headers["Authorization"] != "Bearer secret" {
		t.Errorf("%+v", got)
	}
	if got := As("desk", "k7"); strings.Join(got, " ") != "--client desk --session k7" {
		t.Errorf("%q", got)
	}
	for name, want := range map[string][2]bool{"desk": {true, false}, access.Default: {false, false}} {
		if got := [2]bool{ByCommand(name, false), ByCommand(name, true)}; got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if text, err := (Program{}).Write(Entry{}); text != "" || err != nil {
		t.Errorf("no program: %q, %v", text, err)
	}
	p, _ := Find("opencode")
	former, differs := p.Former()
	text, err := former.Write(Command("/usr/bin/pfar", "/run/pfar"))
	if _, again := former.Former(); !differs || again || err != nil || strings.Contains(text, "servers") {
		t.Errorf("opencode before its version 2: %v, %s", err, text)
	}
	if _, known := Find("notepad"); known {
		t.Error("a program is known that pfar does not know")
	}
}

// TestGooseFile wants the extension of goose in YAML, whatever stands in its values.
func TestGooseFile(t *testing.T) {
	web := Web("http://127.0.0.1:7417/mcp", "desk", "", Token)
	own := Command(`/opt/a "b"\c`, "/run/a: #b", As("desk", "")...)
	const head = "extensions:\n  pfar:\n    enabled: true\n    name: \"pfar\"\n"
	for _, tt := range []struct {
		entry Entry
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
		if got, err := programs["goose"].Write(tt.entry); err != nil || got != head+tt.want {
			t.Errorf("%v\n%s", err, got)
		}
	}
}
