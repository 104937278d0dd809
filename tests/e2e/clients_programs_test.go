package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// inspected is what MCP Inspector is to do, and the result that it is to print.
type inspected struct {
	args []string
	want object
}

// inspections are of the server new, under its names of the aggregate or its own.
func inspections(prefix string, servers ...string) []inspected {
	var tools, uris []string
	for _, s := range servers {
		before := prefix
		if prefix != "" {
			before = s + "__"
		}
		for _, name := range plainTools {
			tools = append(tools, before+name)
		}
		uris = append(uris, "plain://"+s+"/text", "plain://"+s+"/blob")
	}
	r := newRun("", "v2", "legacy", nil)
	want := object{}
	r.expectServer(want, visited{"new", prefix})
	result := func(step string) object { return want["new "+step].(object) }
	return []inspected{
		{[]string{"tools/list"}, object{"tools": tools}}, {[]string{"resources/list"}, object{"resources": uris}},
		{[]string{"tools/call", "--tool-name", prefix + "text", "--tool-arg", "message=h\u00e9llo \U0001f600"}, result("text")},
		{[]string{"tools/call", "--tool-name", prefix + "sum", "--tool-arg", "a=1", "b=2.5"}, result("sum")},
		{[]string{"tools/call", "--tool-name", prefix + "media"}, result("media")},
		{[]string{"prompts/get", "--prompt-name", prefix + "greet", "--prompt-args", "name=Ada"}, result("greet")},
		{[]string{"resources/read", "--uri", "plain://new/blob"}, result("read blob")},
	}
}

// TestInspector runs MCP Inspector's command line over HTTP and stdio. With -short each inspection is done one way,
// since the Inspector takes half a second of processor to start.
func TestInspector(t *testing.T) {
	if os.Getuid() == ordinary {
		return // it has run as root, and is about no privilege
	}
	t.Parallel()
	p := startPlain(t)
	header := "Authorization: Bearer " + p.token()
	base := strings.TrimSuffix(p.last().Endpoint, "/mcp")
	all, env := []string{"brief", "new", "old"}, []string{}
	for _, e := range p.env { // the Inspector hands on none of its own
		if strings.HasPrefix(e, "PFAR_") {
			env = append(env, "-e", e)
		}
	}
	ways := []struct {
		name   string
		before []string // the method
		list   []inspected
	}{
		{"http to all", []string{base + "/mcp", "--transport", "http", "--header", header}, inspections("new__", all...)},
		{"http to new, modern", []string{base + "/mcp/new", "--transport", "http", "--header", header, "--protocol-era", "modern"}, inspections("", "new")},
		{"stdio to all, modern", slices.Concat([]string{program(t, "pfar"), "connect", "--protocol-era", "modern"}, env), inspections("new__", all...)[:3]},
	}
	limit := make(chan struct{}, 3)
	var under sync.WaitGroup
	for way, w := range ways {
		for n, i := range w.list {
			if one := []bool{n%3 == 0, n%3 != 0, n == 0}; testing.Short() && !one[way] {
				continue
			}
			under.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				stdout, stderr, code := p.inspect(t, slices.Concat(w.before, []string{"--method"}, i.args)...)
				if code != 0 {
					t.Errorf("%s: %q: exit code %d: %.1000s", w.name, i.args, code, stderr)
					return
				}
				if got, want := inspectedResult(stdout), plainResult(i.want); !reflect.DeepEqual(got, want) {
					g, _ := json.Marshal(got)
					b, _ := json.Marshal(want)
					t.Errorf("%s: %q: %s, want %s", w.name, i.args, g, b)
				}
			})
		}
	}
	for n, refused := range p.refusals(t) {
		if testing.Short() && n%2 > 0 {
			continue
		}
		under.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			args := []string{refused.url, "--transport", "http", "--stored-auth-only", "--method", "tools/list"}
			for name, value := range refused.headers {
				args = append(args, "--header", name+": "+value)
			}
			stdout, stderr, code := p.inspect(t, args...)
			says := map[string]string{"401": `"code":"auth_required"`}[refused.status]
			if says == "" {
				says = refused.status
			}
			if code == 0 || !strings.Contains(stdout+stderr, says) {
				t.Errorf("%s: exit code %d, no %s in %.1000s%.1000s", refused.name, code, says, stdout, stderr)
			}
		})
	}
	under.Wait()
}

// inspect runs the Inspector.
func (p *pfar) inspect(t *testing.T, args ...string) (stdout, stderr string, code int) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, npmClient(t, ".bin/node"), slices.Concat([]string{npmClient(t, ".bin/mcp-inspector"), "--cli"}, args)...)
	var out, errs bytes.Buffer
	c.Env, c.Stdout, c.Stderr, c.WaitDelay = append(slices.Clone(p.env), "HOME="+p.home), &out, &errs, soon
	if err := c.Run(); err != nil && c.ProcessState == nil {
		return "", err.Error(), -1
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// inspectedResult is what was printed, with lists brought to what identifies their items.
func inspectedResult(stdout string) any {
	var o object
	if err := json.Unmarshal([]byte(stdout), &o); err != nil {
		return fmt.Sprintf("not JSON: %.300s", stdout)
	}
	for name, key := range map[string]string{"tools": "name", "resources": "uri"} {
		list, ok := o[name].([]any)
		if !ok {
			continue
		}
		for i := range list {
			list[i] = list[i].(object)[key]
		}
	}
	return plainResult(o)
}

// refusal is a connection that the endpoint refuses.
type refusal struct {
	name, url string
	headers   map[string]string
	status    string
}

// refusals are what the endpoint is to refuse, whatever the client.
func (p *pfar) refusals(t *testing.T) []refusal {
	t.Helper()
	bearer := map[string]string{"Authorization": "Bearer " + p.token()}
	return []refusal{
		{"without a token", p.last().Endpoint, nil, "401"},
		{"with a wrong token", p.last().Endpoint, map[string]string{"Authorization": "Bearer " + strings.Repeat("0", len(p.token()))}, "401"},
		{"with another Host", p.relay(t, "/mcp"), bearer, "403"},
		{"from a foreign page", p.last().Endpoint, map[string]string{"Authorization": bearer["Authorization"], "Origin": "https://evil.test"}, "403"},
		{"for a server that is not there", p.last().Endpoint + "/nobody", bearer, "404"},
	}
}

// TestRefusedClients has each library refused, and say so.
func TestRefusedClients(t *testing.T) {
	if os.Getuid() == ordinary {
		return // it has run as root, and is about no privilege
	}
	t.Parallel()
	p := startPlain(t)
	var node, all []*run
	status := map[*run]string{}
	for _, refused := range p.refusals(t) {
		for _, l := range [][2]string{{"v1", "legacy"}, {"v2", "legacy"}, {"v2", "modern"}, {"go-sdk", "legacy"}, {"go-sdk", "modern"}, {"mcp-go", "legacy"}, {"mcp-go", "modern"}} {
			r := newRun(fmt.Sprintf("%s %s %s", l[0], l[1], refused.name), l[0], l[1], nil)
			r.URL, r.Headers = refused.url, refused.headers
			status[r] = refused.status
			if all = append(all, r); l[0][0] == 'v' {
				node = append(node, r)
			}
		}
	}
	p.startNode(t, node)
	for _, r := range all {
		if !slices.Contains(node, r) {
			p.startGo(t, r)
		}
	}
	awaitAll(t, all, "refused")
	for _, r := range all {
		r.mu.Lock()
		b, _ := json.Marshal(r.said)
		r.mu.Unlock()
		if words := r.refusedWith(status[r]); len(r.said) != 1 || !bytes.Contains(b, []byte(words)) {
			t.Errorf("%s: %s, want only that it is refused, with %q", r.Name, b, words)
		}
	}
}

// refusedWith is what the library makes of a status.
func (r *run) refusedWith(status string) string {
	switch {
	case r.Library == "mcp-go" && status == "401":
		return "authorization required"
	case r.Library == "mcp-go":
		return "server returned 4xx for initialize POST"
	case r.Library == "v2" && r.modern() && status == "404":
		return "the server did not offer pinned protocol version 2026-07-28"
	case r.Library == "go-sdk":
		return map[string]string{"401": "Unauthorized", "403": "Forbidden", "404": "Not Found"}[status]
	}
	return status
}
