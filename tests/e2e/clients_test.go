package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Both pictures are of one pixel; what tests/corpus -plain says.
const (
	picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	sound   = "UklGRiUAAABXQVZFZm10IBAAAAABAAEARKwAAESsAAABAAgAZGF0YQEAAACA"
)

// visited is a server that a client uses, and what stands before the names of its tools.
type visited struct {
	Name   string `json:"name"`
	Prefix string `json:"prefix"`
}

// run is one client that connects in one way.
type run struct {
	Name    string            `json:"name"`
	Library string            `json:"library"`
	Mode    string            `json:"mode"` // "legacy" or "modern"
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Servers []visited         `json:"servers"`
	Via     http.RoundTripper `json:"-"` // nil: over TCP

	mu   sync.Mutex
	said map[string]any
	last string
	more chan struct{} // closed and replaced when something was said
}

func (r *run) modern() bool { return r.Mode == "modern" }

// say takes a step's value as JSON has it.
func (r *run) say(step string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		value = err.Error()
	} else if err := json.Unmarshal(b, &value); err != nil {
		value = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said[step], r.last = value, step
	close(r.more)
	r.more = make(chan struct{})
}

// awaitAll returns when each run has said the step, or ends the test with what they said instead.
func awaitAll(t *testing.T, runs []*run, step string) {
	t.Helper()
	timeout := time.NewTimer(3 * patience)
	defer timeout.Stop()
	for _, r := range runs {
		for late := false; !late; {
			r.mu.Lock()
			_, done := r.said[step]
			failed := r.said["error"]
			if failed == nil && step != "refused" {
				failed = r.said["refused"]
			}
			more := r.more
			r.mu.Unlock()
			if done || failed != nil {
				break
			}
			select {
			case <-more:
			case <-timeout.C:
				timeout.Reset(0) // for those that follow
				late = true
			}
		}
	}
	for _, r := range runs {
		r.mu.Lock()
		if _, done := r.said[step]; !done {
			t.Errorf("%s has not said %q but %q last: %v", r.Name, step, r.last, r.said[r.last])
		}
		r.mu.Unlock()
	}
	if t.Failed() {
		t.FailNow()
	}
}

// same compares what a client said with what it was to say.
func (r *run) same(t *testing.T, want map[string]any) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, step := range slices.Sorted(maps.Keys(want)) {
		b, err := json.Marshal(want[step])
		check(t, err)
		var w any
		check(t, json.Unmarshal(b, &w))
		if got := r.said[step]; !reflect.DeepEqual(got, w) {
			g, _ := json.Marshal(got)
			t.Errorf("%s: %s: %s, want %s", r.Name, step, g, b)
		}
	}
	for step, value := range r.said {
		if _, ok := want[step]; !ok {
			t.Errorf("%s said %q: %v", r.Name, step, value)
		}
	}
}

type object = map[string]any

func content(blocks ...object) object { return object{"content": blocks} }

func says(text string) object { return object{"type": "text", "text": text} }

// expected is what a client is to say in the end. gone is the server that stops, "" the client's own.
func (r *run) expected(gone string) map[string]any {
	want := object{"ready": true, "closed": true}
	var tools, after, prompts, resources, templates []string
	all := []visited{{"brief", "brief__"}, {"new", "new__"}, {"old", "old__"}}
	if len(r.Servers) == 1 {
		all = r.Servers
		want["server"], want["instructions"] = "corpus-"+r.Servers[0].Name, "Call text first."
	} else {
		want["server"], want["instructions"] = "pfar", aggregateInstructions
	}
	for _, s := range all {
		for _, name := range plainTools {
			tools = append(tools, s.Prefix+name)
			if s.Name != gone {
				after = append(after, s.Prefix+name)
			}
		}
		prompts = append(prompts, s.Prefix+"greet")
		resources = append(resources, "plain://"+s.Name+"/text", "plain://"+s.Name+"/blob")
		templates = append(templates, "plain://"+s.Name+"/item/{id}")
	}
	want["tools"], want["prompts"], want["resources"], want["templates"] = tools, prompts, resources, templates
	want["changed"] = after
	if gone == "" {
		want["changed"] = -32010
	}
	for _, s := range r.Servers {
		r.expectServer(want, s)
	}
	return want
}

var plainTools = []string{"text", "sum", "wrong", "media", "steps", "release", "fail", "wait", "cancelled", "received", "touch"}

const aggregateInstructions = `pfar serves the tools, prompts and resources of several MCP servers, each confined to what its owner declared. ` +
	`A tool or prompt is called SERVER__NAME. A server that stops takes its tools out of the lists; they come back with it.` +
	"\n\nServer brief says about itself:\n> Call text first.\n" + "\n\nServer new says about itself:\n> Call text first.\n" + "\n\nServer old says about itself:\n> Call text first.\n"

// expectServer adds what a client is to say of one server.
func (r *run) expectServer(want object, s visited) {
	uri := func(path string) string { return "plain://" + s.Name + "/" + path }
	say := func(step string, value any) { want[s.Name+" "+step] = value }
	say("text", content(says("h\u00e9llo \U0001f600")))
	say("sum", object{"content": []object{says("3.5")}, "structuredContent": object{"sum": 3.5, "words": []string{"a", "b"}}})
	text := says("all of them")
	text["annotations"] = object{"audience": []string{"user"}, "priority": 0.5}
	say("media", content(text,
		object{"type": "image", "data": picture, "mimeType": "image/png"},
		object{"type": "audio", "data": sound, "mimeType": "audio/wav"},
		object{"type": "resource", "resource": object{"uri": uri("text"), "mimeType": "text/plain", "text": "embedded"}},
		object{"type": "resource", "resource": object{"uri": uri("blob"), "mimeType": "image/png", "blob": picture}},
		object{"type": "resource_link", "uri": uri("item/1"), "name": "item 1", "description": "the first", "mimeType": "text/plain"}))
	say("steps", content(says("3 steps")))
	say("progress", [][]any{{1, 3, "step 1"}, {2, 3, "step 2"}, {3, 3, "step 3"}})
	say("fail", object{"content": []object{says("failed as told")}, "isError": true})
	say("unknown", object{"code": -32602, "message": fmt.Sprintf("unknown tool %q; look whether the name is right, "+
		"and still there", s.Prefix+"nothing")})
	say("greet", object{"description": "a greeting", "messages": []object{{"role": "user", "content": says("Hello, Ada!")}}})
	say("complete", object{"values": []string{"Ada", "Alan"}, "total": 2, "hasMore": false})
	say("complete template", object{"values": []string{"Grace"}, "total": 1, "hasMore": false})
	say("read text", object{"contents": []object{{"uri": uri("text"), "mimeType": "text/plain", "text": "some text"}}})
	say("read blob", object{"contents": []object{{"uri": uri("blob"), "mimeType": "image/png", "blob": picture}}})
	say("read item/7", object{"contents": []object{{"uri": uri("item/7"), "mimeType": "text/plain", "text": "item 7"}}})
	say("missing", map[bool]int{false: -32002, true: -32602}[r.modern() || r.Library == "v2"]) // which takes one for the other
	say("given up", false)
	say("cancelled", true)
	say("updated", true)
}

// startPlain brings up three servers whose answers clients understand: two of either generation and one to be stopped.
func startPlain(t *testing.T) *pfar {
	t.Helper()
	declarations := map[string]string{}
	for name, generation := range map[string]string{"brief": "both", "new": "modern", "old": "legacy"} {
		declarations[name+".hcl"] = declare(program(t, "corpus"), []string{"-plain", "-name", name, "-generation", generation}, "")
	}
	p := start(t, declarations)
	p.awaitRunning("brief", "new", "old")
	return p
}

// runs are all ways in which a library can reach the servers.
func (p *pfar) runs(library string, modes ...string) []*run {
	var list []*run
	both := []visited{{"new", "new__"}, {"old", "old__"}}
	for _, mode := range modes {
		for _, target := range [][]visited{both, {{"new", ""}}, {{"old", ""}}} {
			path, args, where := "/mcp", []string{"connect"}, "all"
			if len(target) == 1 {
				where = target[0].Name
				path, args = "/mcp/"+where, append(args, where)
			}
			name := fmt.Sprintf("%s %s %%s %s", library, mode, where)
			list = append(list, newRun(fmt.Sprintf(name, "http"), library, mode, target), newRun(fmt.Sprintf(name, "stdio"), library, mode, target))
			http, stdio := list[len(list)-2], list[len(list)-1]
			http.URL, http.Headers = strings.TrimSuffix(p.last().Endpoint, "/mcp")+path, map[string]string{"Authorization": "Bearer " + p.token()}
			stdio.Command, stdio.Args = program(p.t, "pfar"), args
		}
	}
	return list
}

func newRun(name, library, mode string, servers []visited) *run {
	return &run{Name: name, Library: library, Mode: mode, Servers: servers, said: map[string]any{}, more: make(chan struct{})}
}

// TestRealClients has the libraries that others write clients with use everything there is, over every way to it.
func TestRealClients(t *testing.T) {
	if os.Getuid() == ordinary {
		return // it has run as root, and is about no privilege
	}
	t.Parallel()
	p := startPlain(t)
	node := slices.Concat(p.runs("v1", "legacy"), p.runs("v2", "legacy", "modern"), p.remoteRuns(t))
	goRuns := slices.Concat(p.runs("go-sdk", "legacy", "modern"), p.runs("mcp-go", "legacy", "modern"))
	p.startNode(t, node)
	for _, r := range goRuns {
		p.startGo(t, r)
	}
	all := slices.Concat(node, goRuns)
	awaitAll(t, all, "ready")
	stop := func(name string) {
		if _, stderr, code := p.command("stop", name); code != 0 {
			t.Fatalf("pfar stop %s: %d: %s", name, code, stderr)
		}
	}
	alone := func(r *run) bool { return len(r.Servers) == 1 }
	stop("brief")
	together := slices.DeleteFunc(slices.Clone(all), alone)
	awaitAll(t, together, "closed")
	stop("new")
	stop("old")
	awaitAll(t, all, "closed")
	for _, r := range all {
		gone := "brief"
		if alone(r) {
			gone = ""
		}
		r.same(t, r.expected(gone))
	}
}

// startNode starts the runs in one process of Node.
func (p *pfar) startNode(t *testing.T, runs []*run) {
	t.Helper()
	b, err := json.Marshal(runs)
	check(t, err)
	c := exec.CommandContext(t.Context(), npmClient(t, ".bin/node"), p.nodeProgram(t), string(b))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) } // with those that it has started
	c.WaitDelay = soon
	log := &output{}
	c.Env, c.Stderr = append(slices.Clone(p.env), "MCP_REMOTE_CONFIG_DIR="+p.home), log
	out, err := c.StdoutPipe()
	check(t, err)
	check(t, c.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		readRuns(out, runs)
		c.Wait()
	}()
	t.Cleanup(func() {
		if <-ended; t.Failed() {
			t.Logf("the clients in Node wrote: %.4000s", log)
		}
	})
}

// nodeProgram copies the program to where what it imports is found beside it.
func (p *pfar) nodeProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(p.home, "client.mjs")
	copyFile(t, filepath.Join("..", "clients", "mcp", "client.mjs"), program)
	check(t, os.Symlink(npmClient(t, ""), filepath.Join(p.home, "node_modules")))
	return program
}

// readRuns hands what the process says to its runs, and each of them its end.
func readRuns(out io.Reader, runs []*run) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		var said struct {
			Run, Step string
			Value     any
		}
		if json.Unmarshal(line, &said) == nil && said.Step != "" {
			if i := slices.IndexFunc(runs, func(r *run) bool { return r.Name == said.Run }); i >= 0 {
				runs[i].say(said.Step, unprefixed(said.Value))
			}
		}
		if err != nil {
			for _, r := range runs {
				if r.mu.Lock(); r.said["closed"] == nil && r.said["refused"] == nil && r.said["error"] == nil {
					defer r.say("error", "the process has ended")
				}
				r.mu.Unlock()
			}
			return
		}
	}
}

// unprefixed takes out of an error what the library puts before the server's words.
func unprefixed(value any) any {
	if o, ok := value.(object); ok && o["code"] != nil {
		if text, ok := o["message"].(string); ok {
			o["message"] = strings.TrimPrefix(text, fmt.Sprintf("MCP error %v: ", o["code"]))
		}
	}
	return value
}

// relay passes connections on to the endpoint from another port, as a page whose name leads here would come: Host then
// is not the endpoint's.
func (p *pfar) relay(t *testing.T, path string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	to := strings.TrimSuffix(strings.TrimPrefix(p.last().Endpoint, "http://"), "/mcp")
	ctx, cancel := context.WithCancel(context.Background())
	var open sync.WaitGroup
	t.Cleanup(func() { l.Close(); cancel(); open.Wait() })
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { relayOne(ctx, c, to) })
		}
	})
	return "http://" + l.Addr().String() + path
}

// remoteRuns are those of mcp-remote, a program from npm that speaks stdio on one side and HTTP on the other.
func (p *pfar) remoteRuns(t *testing.T) []*run {
	t.Helper()
	var list []*run
	for _, r := range p.runs("v1", "legacy") {
		if r.Command != "" {
			continue
		}
		r.Name = "mcp-remote, " + r.Name
		r.Command = npmClient(t, ".bin/node")
		r.Args = []string{npmClient(t, "mcp-remote/dist/proxy.js"), r.URL, "--transport", "http-only", "--header", "Authorization: " + r.Headers["Authorization"]}
		r.URL, r.Headers = "", nil
		list = append(list, r)
	}
	return list
}

// relayOne passes one connection on until either side, or ctx, ends it.
func relayOne(ctx context.Context, c net.Conn, to string) {
	defer c.Close()
	d, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer d.Close()
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{c, d}, {d, c}} {
		go func() {
			io.Copy(pair[0], pair[1])
			ended <- struct{}{}
		}()
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
