package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/control"
)

// The limits of calls: each a ratio to the least gateway that there can be, of the same run.
const (
	limitCall   = 1.5  // p50, one call at a time
	limitRate   = 0.75 // calls a second, many at a time
	limitLarge  = 1.5  // p50 of 64 KiB there and back, or back
	limitList   = 1.3  // p50 of a long list, to a handler that writes ready bytes
	limitFenced = 1.3  // of a real server
)

const (
	large     = 64 << 10 // bytes of a large argument or result
	manyTools = 1000

	floorName = "floor"
	bareName  = "bare floor" // whose server is in no sandbox
)

// stage is all that the calls are measured on: one pfar, and beside it the floors.
type stage struct {
	ctx           context.Context
	dir, bin      string
	rounds        int
	pfar          *pfar
	address       string
	token         string
	floor, schema *role // in front of echo, and of the server with the schemas, both confined as pfar's are
	bare          *role // in front of echo as it is
	roles         []*role
	gatewayPID    int
}

// gateway measures calls through pfar against calls through the floor.
func gateway(ctx context.Context, dir, bin string, rounds int) ([]result, error) {
	s := &stage{ctx: ctx, dir: dir, bin: bin, rounds: min(rounds, 15)}
	defer s.close()
	if err := s.make(); err != nil {
		return nil, fmt.Errorf("setting the stage for calls: %w", err)
	}
	var results []result
	for _, part := range []func() ([]result, error){s.latency, s.throughput, s.largeBodies, s.lists, s.fences, s.crowd, s.endurance} {
		r, err := part()
		if err != nil {
			return nil, err
		}
		results = append(results, r...)
	}
	return results, nil
}

func (s *stage) close() {
	if s.pfar != nil {
		s.pfar.down()
	}
	for _, r := range s.roles {
		r.end()
	}
}

// echoArgv is the same program for both sides; its tool label answers with 64 KiB.
func (s *stage) echoArgv() []string {
	return []string{filepath.Join(s.bin, "echo"), "-label", strings.Repeat("x", large)}
}

// prose is so many bytes of text that somebody could have written, with nothing in it that JSON escapes.
func prose(n int) string {
	const line = "The quick brown fox jumps over the lazy dog, and public policy applies to people. "
	return strings.Repeat(line, n/len(line)+1)[:n]
}

// proseArgv is one whose tool label answers with prose, in lines and with quotes.
func (s *stage) proseArgv() []string {
	return []string{filepath.Join(s.bin, "echo"), "-label", lines(large)}
}

// lines is prose in lines and with quotes.
func lines(n int) string {
	return strings.NewReplacer("public", `"public"`, ". ", ".\n").Replace(prose(n))
}

// reads says of a server that its tool label carries nothing anywhere, so that it goes on whatever a session has read.
const reads = `
label = "public"
tool "label" {
  effect = "none"
}
`

// strange says of a server that it does, and that all it answers is strangers' text.
const strange = reads + `
trust {
  public_source    = true
  secret_data      = false
  public_sink      = false
  dangerous_writes = false
}
`

// files declares a real server, of Node.js, that reads the file text of the stage.
func (s *stage) files(more string) string {
	program := filepath.Join(os.Getenv("PFAR_TEST_SERVERS"), "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")
	more = strings.Replace(more, `tool "label"`, `tool "read_text_file"`, 1) + fmt.Sprintf("sandbox {\n  read_only = [%q]\n}\n", filepath.Dir(s.text()))
	return declaration([]string{"node", program, filepath.Dir(s.text())}, more)
}

// text is a file of 64 KiB that somebody could have written.
func (s *stage) text() string { return filepath.Join(s.dir, "texts", "text.txt") }

func (s *stage) schemaArgv() []string { return []string{filepath.Join(s.bin, "bench"), schemaRole} }

func (s *stage) make() (err error) {
	if err := os.MkdirAll(filepath.Dir(s.text()), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.text(), []byte(lines(large)), 0o644); err != nil {
		return err
	}
	declarations := map[string]string{
		"echo":   declaration(s.echoArgv(), ""),
		"schema": declaration(s.schemaArgv(), ""),
		"read":   declaration(s.proseArgv(), reads),
		"web":    declaration(s.proseArgv(), strange),
		"file":   s.files(reads),
		"shared": s.files(strange),
		"many":   declaration([]string{filepath.Join(s.bin, "echo"), "-tools", fmt.Sprint(manyTools)}, ""),
	}
	if s.pfar, err = up(s.ctx, s.dir, s.bin, declarations); err != nil {
		return err
	}
	if err := s.pfar.await(s.ctx, allRunning(len(declarations))); err != nil {
		return err
	}
	if s.address, s.token, err = s.pfar.endpoint(s.ctx); err != nil {
		return err
	}
	if s.gatewayPID, err = s.pfar.process("pfar-gateway"); err != nil {
		return err
	}
	if s.floor, err = s.play(floorRole, append([]string{confined}, s.echoArgv()...)...); err != nil {
		return err
	}
	if s.bare, err = s.play(floorRole, s.echoArgv()...); err != nil {
		return err
	}
	s.schema, err = s.play(floorRole, append([]string{confined}, s.schemaArgv()...)...)
	return err
}

func (s *stage) play(name string, args ...string) (*role, error) {
	r, err := play(s.ctx, name, args...)
	if err == nil {
		s.roles = append(s.roles, r)
	}
	return r, err
}

// endpoint returns where the gateway listens, and its token.
func (p *pfar) endpoint(ctx context.Context) (address, token string, err error) {
	answer, err := p.client.Do(ctx, control.Request{Verb: control.Status})
	if err != nil {
		return "", "", err
	}
	u, err := url.Parse(answer.Status.Endpoint)
	if err != nil {
		return "", "", err
	}
	b, err := os.ReadFile(answer.Status.TokenFile)
	return u.Host, string(bytes.TrimSpace(b)), err
}

// process finds the one process of a name below pfar.
func (p *pfar) process(name string) (int, error) {
	for _, pid := range descendants(p.cmd.Process.Pid) {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if strings.TrimSpace(string(comm)) == name {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no %s is running", name)
}

// routes returns a tool's ways: the floor's for each generation, and pfar's on the aggregate and on the server's own
// endpoint for each. Both sides get the same bytes, head and body, but for the aggregate's longer name.
func (s *stage) routes(floor *role, server, tool, message string, least int) []route {
	var list []route
	for _, version := range []string{older, newer} {
		base := route{version: version, message: message, answer: least, token: s.token}
		f := base
		f.name, f.address, f.path, f.tool, f.floor = floorName+" "+version, floor.address, "/mcp", tool, true
		all := base
		all.name, all.address, all.path, all.tool = "/mcp "+version, s.address, "/mcp", server+"__"+tool
		one := all
		one.name, one.path, one.tool = "/mcp/"+server+" "+version, "/mcp/"+server, tool
		list = append(list, f, all, one)
	}
	return list
}

// compare makes the lines of the table for the routes of pfar's, each against the floor of its generation.
func compare(what string, routes []route, samples map[string][]sample, m measure) []result {
	var results []result
	for _, r := range routes {
		if r.floor {
			continue
		}
		results = append(results, compared(what+", "+r.name, samples[floorName+" "+r.version], samples[r.name], m))
	}
	return results
}

// latency is one call after another.
func (s *stage) latency() ([]result, error) {
	var results []result
	for _, m := range []struct {
		what         string
		floor        *role
		server, tool string
		limit        float64
	}{
		{"call, one at a time", s.floor, "echo", "echo", limitCall},
		{"call with schemas of arguments and result", s.schema, "schema", "measure", 0},
	} {
		routes := s.routes(m.floor, m.server, m.tool, "hello", 0)
		samples, err := interleave(routes, load{calls: 1000, inFlight: 1, turns: 20}, s.rounds, plainly)
		if err != nil {
			return nil, err
		}
		results = append(results, compare(m.what, routes, samples, p50(m.limit))...)
	}
	return results, nil
}

// throughput is many calls at once, and what they cost the gateway's own process.
func (s *stage) throughput() ([]result, error) {
	var results []result
	routes := s.routes(s.floor, "echo", "echo", "hello", 0)
	routes = slices.DeleteFunc(routes, func(r route) bool { return strings.HasPrefix(r.path, "/mcp/") })
	bare := routes[0]
	bare.name, bare.address = bareName, s.bare.address
	routes = append(routes, bare)
	spent, err := s.costs()
	if err != nil {
		return nil, err
	}
	for _, inFlight := range []int{16, 64} {
		l := load{calls: 4000, inFlight: inFlight, turns: 1}
		samples, err := interleave(routes, l, min(s.rounds, 9), func(name string, run func() error) error {
			name, _, _ = strings.Cut(name, " 2")
			return spent.during(name, l.calls, run)
		})
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("calls, %d at a time", inFlight)
		results = append(results, compare(what, routes, samples, perSecond(limitRate))...)
		outside := what + ", /mcp " + older + " (plain: its server in no sandbox)"
		results = append(results, compared(outside, samples[bareName], samples["/mcp "+older], perSecond(0)))
	}
	more, err := spent.results(floorName, "/mcp")
	return append(results, more...), err
}

// costs watches the gateway and the server of each side.
func (s *stage) costs() (*cost, error) {
	pids := map[string][]int{}
	for _, side := range []struct {
		name    string
		gateway int
		root    int
	}{
		{floorName, s.floor.cmd.Process.Pid, s.floor.cmd.Process.Pid},
		{bareName, s.bare.cmd.Process.Pid, s.bare.cmd.Process.Pid},
		{"/mcp", s.gatewayPID, s.pfar.cmd.Process.Pid},
	} {
		list := []int{side.gateway}
		for _, pid := range descendants(side.root) {
			// bwrap has the server's arguments too, but not its name.
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if string(comm) == "echo\n" && bytes.Contains(line, []byte("-label\x00xx")) { // others have prose
				list = append(list, pid)
			}
		}
		if len(list) != 2 {
			return nil, fmt.Errorf("looking for the server of %s: %d processes, want 2", side.name, len(list))
		}
		pids[side.name] = list
	}
	return newCost(pids), nil
}

// largeBodies are 64 KiB there and back, and 64 KiB back.
func (s *stage) largeBodies() ([]result, error) {
	var results []result
	for _, m := range []struct{ what, tool, message string }{
		{"64 KiB argument echoed", "echo", prose(large)},
		{"64 KiB result", "label", ""},
	} {
		routes := s.routes(s.floor, "echo", m.tool, m.message, large)
		samples, err := interleave(routes, load{calls: 100, inFlight: 1, turns: 5}, s.rounds, plainly)
		if err != nil {
			return nil, err
		}
		results = append(results, compare(m.what, routes, samples, p50(limitLarge))...)
	}
	return results, nil
}

// fences is text that is looked through and fenced, against the same from a server that is trusted: of the quickest
// server that there can be, which has no limit, and of a real one, which has it twice in its results.
func (s *stage) fences() ([]result, error) {
	var results []result
	for _, one := range []struct {
		what, trusted, strange, tool, members string
		limit                                 float64
	}{
		{"64 KiB of text of the quickest server, inspected and fenced (plain: of a trusted server)", "/mcp/read", "/mcp/web", "label", "", 0},
		{"64 KiB of text of server-filesystem, the same (plain: as a trusted server)", "/mcp/file", "/mcp/shared", "read_text_file", fmt.Sprintf(`"path":%q`, s.text()), limitFenced},
	} {
		trusted := route{name: "trusted", version: older, address: s.address, token: s.token, path: one.trusted, tool: one.tool, members: one.members, answer: large}
		fenced := trusted
		fenced.name, fenced.path = "fenced", one.strange
		samples, err := interleave([]route{trusted, fenced}, load{calls: 100, inFlight: 1, turns: 5}, s.rounds, plainly)
		if err != nil {
			return nil, err
		}
		results = append(results, compared(one.what, samples[trusted.name], samples[fenced.name], p50(one.limit)))
	}
	return results, nil
}

// lists is a long list, against a handler that writes the same bytes and reads nothing.
func (s *stage) lists() ([]result, error) {
	var results []result
	for _, version := range []string{older, newer} {
		for _, path := range []string{"/mcp", "/mcp/many"} {
			r, err := s.list(path, version)
			if err != nil {
				return nil, err
			}
			results = append(results, r...)
		}
	}
	return results, nil
}

func (s *stage) list(path, version string) ([]result, error) {
	in := route{name: path + " " + version, address: s.address, path: path, token: s.token, version: version, list: true}
	ready, err := in.fetch()
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(ready, []byte(`"inputSchema"`)); n < manyTools {
		return nil, fmt.Errorf("%s lists %d tools, want %d", in.name, n, manyTools)
	}
	file := filepath.Join(s.dir, "list.json")
	if err := os.WriteFile(file, ready, 0o644); err != nil {
		return nil, err
	}
	handler, err := s.play(staticRole, file)
	if err != nil {
		return nil, err
	}
	in.answer = len(ready)
	static := in
	static.name, static.address, static.floor, static.fixed = floorName+" "+version, handler.address, true, true
	routes := []route{static, in}
	samples, err := interleave(routes, load{calls: 2000, inFlight: 1, turns: 200}, s.rounds, plainly)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("tools/list of %d kB (plain: ready bytes)", len(ready)/1000)
	return compare(what, routes, samples, p50(limitList)), nil
}

// fetch makes one call and returns the whole answer.
func (r route) fetch() ([]byte, error) {
	c, err := r.open()
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.call(1); err != nil {
		return nil, err
	}
	if len(c.in) == 0 {
		return nil, errors.New("an empty answer")
	}
	return bytes.Clone(c.in), nil
}
