package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// asked is a request to a real server. NAME in a name or reference stands for the prefix on the aggregate.
type asked struct {
	method, params string // without _meta
	legacy         bool   // a method that only the older generation has
	token          bool   // progress is wanted
}

func tool(name, arguments string) asked {
	return asked{method: "tools/call", params: fmt.Sprintf(`{"name":"NAME%s","arguments":%s}`, name, arguments)}
}

func prompt(name, arguments string) asked {
	return asked{method: "prompts/get", params: fmt.Sprintf(`{"name":"NAME%s","arguments":%s}`, name, arguments)}
}

func resource(uri string) asked {
	return asked{method: "resources/read", params: fmt.Sprintf(`{"uri":%q}`, uri)}
}

func everythingAsked() []asked {
	list := []asked{
		tool("echo", `{"message":"h\u00e9\u2028<&>\ud83d\ude00"}`), tool("echo", `{ "message" : "", "more":1.0 }`),
		tool("get-annotated-message", `{"messageType":"error"}`), tool("get-annotated-message", `{"messageType":"debug","includeImage":true}`),
		tool("get-resource-links", `{"count":4}`), tool("get-resource-reference", `{"resourceType":"Text","resourceId":2}`),
		tool("get-resource-reference", `{"resourceType":"Blob","resourceId":1.0}`), tool("get-structured-content", `{"location":"Chicago"}`),
		tool("get-sum", `{"a":0.1,"b":0.2}`), tool("get-sum", `{"a":12345678901234567890,"b":-0}`), tool("get-tiny-image", `{}`),
		tool("gzip-file-as-resource", `{"name":"a.gz","data":"data:text/plain,hello","outputType":"resource"}`),
		{method: "tools/call", params: `{"name":"NAMEtrigger-long-running-operation","arguments":{"duration":0.1,"steps":3}}`, token: true},
		prompt("simple-prompt", `{}`), prompt("args-prompt", `{"city":"K\u00f6ln"}`), prompt("completable-prompt", `{"department":"Sales","name":"David"}`),
		prompt("resource-prompt", `{"resourceType":"Text","resourceId":"1"}`), prompt("args-prompt", `{}`),
		resource("demo://resource/dynamic/text/1"), resource("demo://resource/dynamic/blob/2"), resource("demo://resource/dynamic/text/x"),
		{method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"NAMEcompletable-prompt"},"argument":{"name":"department","value":"S"}}`},
		{method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"NAMEcompletable-prompt"},"argument":{"name":"name","value":""},"context":{"arguments":{"department":"Sales"}}}`},
		{method: "completion/complete", params: `{"ref":{"type":"ref/resource","uri":"demo://resource/dynamic/text/{resourceId}"},"argument":{"name":"resourceId","value":"1"}}`},
		{method: "resources/subscribe", params: `{"uri":"demo://resource/static/document/features.md"}`, legacy: true},
		{method: "resources/unsubscribe", params: `{"uri":"demo://resource/static/document/features.md"}`, legacy: true},
		{method: "logging/setLevel", params: `{"level":"emergency"}`, legacy: true}, {method: "ping", params: `{}`, legacy: true},
	}
	for _, name := range []string{"architecture", "extension", "features", "how-it-works", "instructions", "startup", "structure"} {
		list = append(list, resource("demo://resource/static/document/"+name+".md"))
	}
	return list
}

func filesAsked(dir string) []asked {
	at := func(name, more string) string { return fmt.Sprintf(`{"path":%q%s}`, filepath.Join(dir, name), more) }
	return []asked{
		tool("list_allowed_directories", `{}`), tool("list_directory", at("", "")), tool("list_directory_with_sizes", at("", `,"sortBy":"size"`)),
		tool("directory_tree", at("", "")), tool("search_files", at("", `,"pattern":"**/*.txt"`)), tool("get_file_info", at("a.txt", "")),
		tool("read_text_file", at("a.txt", "")), tool("read_text_file", at("a.txt", `,"head":1`)), tool("read_file", at("sub/b.txt", "")),
		tool("read_media_file", at("one.png", "")), tool("read_multiple_files", fmt.Sprintf(`{"paths":[%q,%q]}`, filepath.Join(dir, "a.txt"), filepath.Join(dir, "none"))),
		tool("read_text_file", at("none.txt", "")), tool("read_text_file", `{"path":"/etc/shadow"}`),
		tool("edit_file", at("a.txt", `,"edits":[{"oldText":"one","newText":"two"}],"dryRun":true`)),
	}
}

func memoryAsked(way string) []asked {
	entity := fmt.Sprintf("entity of %s", way)
	return []asked{
		tool("create_entities", fmt.Sprintf(`{"entities":[{"name":%q,"entityType":"way","observations":["\u00e9","1.0"]}]}`, entity)),
		tool("add_observations", fmt.Sprintf(`{"observations":[{"entityName":%q,"contents":["more"]}]}`, entity)),
		tool("create_relations", fmt.Sprintf(`{"relations":[{"from":%q,"to":%q,"relationType":"is"}]}`, entity, entity)),
		tool("search_nodes", `{"query":"more"}`), tool("open_nodes", fmt.Sprintf(`{"names":[%q]}`, entity)), tool("read_graph", `{}`),
		tool("add_observations", `{"observations":[{"entityName":"nobody","contents":[]}]}`),
		tool("delete_entities", fmt.Sprintf(`{"entityNames":[%q]}`, entity)),
	}
}

// TestRealServersSayTheSame has the servers from npm answer directly and through pfar.
func TestRealServersSayTheSame(t *testing.T) {
	if os.Getuid() == ordinary {
		return // it has run as root, and is about no privilege
	}
	t.Parallel()
	files, graph := directory(t, ""), filepath.Join(directory(t, ""), "memory.json")
	putTree(t, files)
	everything, filesystem := npm(t, "@modelcontextprotocol/server-everything/dist/index.js"), npm(t, "@modelcontextprotocol/server-filesystem/dist/index.js")
	memory, notion := npm(t, "@modelcontextprotocol/server-memory/dist/index.js"), npm(t, "@notionhq/notion-mcp-server/bin/cli.mjs")
	playwright := npmClient(t, "@playwright/mcp/cli.js")
	p := prepare(t, map[string]string{
		"everything.hcl": declare("node", []string{everything}, ""),
		"files.hcl":      declare("node", []string{filesystem, files}, fmt.Sprintf("sandbox { read_only = [%q] }", files)),
		"memory.hcl":     declare("node", []string{memory}, "env = { MEMORY_FILE_PATH = \"/home/mcp/memory.json\" }\nsandbox { state = true }"),
		"notion.hcl":     "allowed_domains = [\"api.notion.com\"]\n" + declare("node", []string{notion}, "auth = { NOTION_TOKEN = \"vault:notion_token\" }"),
		"playwright.hcl": declare("node", []string{playwright}, ""),
	})
	p.up()
	p.stdin = notionToken + "\n"
	if _, stderr, code := p.command("vault", "set", "notion_token"); code != 0 {
		t.Fatalf("pfar vault set: %d: %s", code, stderr)
	}
	servers := []*original{
		newOriginal(t, "everything", environment(), "node", everything), newOriginal(t, "files", environment(), "node", filesystem, files),
		newOriginal(t, "memory", environment("MEMORY_FILE_PATH="+graph), "node", memory),
		newOriginal(t, "notion", environment("NOTION_TOKEN="+notionToken), "node", notion), newOriginal(t, "playwright", environment(), "node", playwright),
	}
	for _, tier := range browserTiers(t) { // the client's profile can never call these, and has none of them listed
		offered := servers[len(servers)-1].lists
		offered["tools"] = slices.DeleteFunc(offered["tools"], func(direct []byte) bool {
			return slices.ContainsFunc(tier.tools, func(r *regexp.Regexp) bool { return r.MatchString(text(member(direct, "name"))) })
		})
	}
	p.awaitRunning("everything", "files", "memory", "notion", "playwright")
	ways := p.ways(servers)
	for _, w := range ways { // before anything is called: the server everything then has more resources
		w.sameLists(t, servers)
	}
	for i, w := range ways {
		for _, o := range servers {
			if w.server != "" && w.server != o.name {
				continue
			}
			list := map[string][]asked{"everything": everythingAsked(), "files": filesAsked(files), "memory": memoryAsked(w.name)}[o.name]
			for j, a := range list {
				if a.legacy && (w.modern() || w.server == "") {
					continue
				}
				if d := w.asks(o, a, 1000*i+j); d != "" {
					t.Errorf("%s: %s %s of %s: %s", w.name, a.method, a.params, o.name, d)
				}
			}
		}
	}
}

// asks makes a request directly and through pfar. Where the server itself does not say the same twice, since it says
// what time it is, both are asked again; the server memory is asked once, as it remembers.
func (w *way) asks(o *original, a asked, n int) string {
	difference := ""
	for try := range 5 {
		id := fmt.Sprint(10*n + try)
		before, err := o.asked(o.direct, a, "", `"a`+id+`"`)
		if err != nil {
			return err.Error()
		}
		prefix := ""
		if w.server == "" {
			prefix = o.name + "__"
		}
		through, err := o.asked(w, a, prefix, id)
		if err != nil {
			return err.Error()
		}
		if difference = w.sameAnswer(a.method, through, before, o); difference == "" || o.name == "memory" {
			return difference
		}
		after, err := o.asked(o.direct, a, "", `"b`+id+`"`)
		if err != nil || bytes.Equal(before.value, after.value) {
			return difference
		}
	}
	return difference
}

// asked makes the request; the progress token does not tell by whom.
func (o *original) asked(s speaker, a asked, prefix, id string) (spoken, error) {
	params := strings.ReplaceAll(a.params, "NAME", prefix)
	subject := member([]byte(params), "name")
	if a.method == "resources/read" {
		subject = member([]byte(params), "uri")
	}
	var meta []string
	token := ""
	if a.token {
		token = strings.Trim(id, `"ab`)
		meta = append(meta, `"progressToken":`+token)
	}
	if s.modern() {
		meta = append(meta, modernMeta)
	}
	if len(meta) > 0 {
		params = strings.TrimSuffix(params, "}") + `,"_meta":{` + strings.Join(meta, ",") + `}}`
	}
	header := ""
	if subject != nil {
		header = text(subject)
	}
	return s.ask(a.method, params, id, token, header)
}

func putTree(t *testing.T, dir string) {
	t.Helper()
	check(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	picture, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	check(t, err)
	for name, text := range map[string]string{"a.txt": "one\n\u2028<&>\x00\nthree\n", "sub/b.txt": "", "one.png": string(picture)} {
		put(t, filepath.Join(dir, name), text)
		old := time.Now().Add(-time.Hour)
		check(t, os.Chtimes(filepath.Join(dir, name), time.Now(), old))
	}
}
