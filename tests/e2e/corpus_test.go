package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/tests/corpus/shape"
	"github.com/pfar/pfar/units/control"
)

const (
	seedVariable = "PFAR_TEST_SEED" // of the generated corpus; a new one each time if it is not set
	madeTools    = 40
	leastMade    = 2000 // exchanges
)

// corpusServer is a server that makes its answers up.
type corpusServer struct {
	*original
	*shape.Server
	notes *rate.Limiter   // the gateway lets 200 a second pass
	held  map[string]bool // names of tools and prompts that are not served, as programs read them differently
}

// TestGeneratedCorpus sends requests of every shape to servers that answer in every shape, directly and through pfar,
// and wants the same bytes. Only tools and prompts that programs read differently are not to be there.
func TestGeneratedCorpus(t *testing.T) {
	if os.Getuid() == ordinary {
		return // it has run as root, and is about no privilege
	}
	t.Parallel()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		check(t, err)
	}
	t.Logf("%s=%d", seedVariable, seed)
	servers, p := startCorpus(t, seed)
	ways := p.ways(originals(servers))
	made, held := 0, 0
	for _, v := range servers {
		v.hold()
		held += len(v.held)
		tools := fmt.Sprintf("%d tools, ", len(v.lists["tools"]))
		p.await("what was accepted being served", soon, func(r control.Report) bool {
			return strings.HasPrefix(server(r, v.original.name).Detail, tools)
		})
	}
	var count atomic.Int64
	var under sync.WaitGroup
	for _, w := range ways {
		w.sameGreeting(t, servers)
		w.sameLists(t, originals(servers))
		reached := servers
		if w.server != "" {
			reached = []*corpusServer{servers[slices.IndexFunc(servers, func(v *corpusServer) bool { return v.original.name == w.server })]}
		}
		for _, v := range reached {
			n, first := leastMade/(len(servers)*8)+24, made
			made += n
			under.Go(func() { count.Add(int64(w.converse(t, v, first, n))) })
		}
	}
	under.Wait()
	if count.Load() < leastMade || held == 0 {
		t.Errorf("%d exchanges and %d definitions held back, want %d and some", count.Load(), held, leastMade)
	}
}

// hold takes what pfar holds back out of what a server lists, and remembers the names.
func (v *corpusServer) hold() {
	v.held = map[string]bool{}
	for _, list := range []string{"tools", "prompts"} {
		v.lists[list] = slices.DeleteFunc(v.lists[list], func(item []byte) bool {
			read, err := without(item, func(name string, _ []byte) bool { return name == "_meta" || name == "icons" })
			if err != nil || !halved(read) {
				return false
			}
			v.held[text(member(item, "name"))] = true
			return true
		})
	}
}

// escapes are the escapes of JSON text, one after the other: a pair of surrogates is one.
var escapes = regexp.MustCompile(`(?i)\\u(d[89ab]..)\\u(d[c-f]..)|\\u(d[89a-f]..)|\\.`)

// halved reports whether half of a surrogate pair stands somewhere alone.
func halved(b []byte) bool {
	return slices.ContainsFunc(escapes.FindAllSubmatch(b, -1), func(m [][]byte) bool { return m[3] != nil })
}

// startCorpus starts a server of each kind, once alone and once in pfar.
func startCorpus(t *testing.T, seed uint64) ([]*corpusServer, *pfar) {
	t.Helper()
	declarations := map[string]string{}
	var servers []*corpusServer
	for _, kind := range []string{"both", "legacy", "modern"} { // in the order of their names
		args := []string{"-name", kind, "-generation", kind, "-seed", fmt.Sprint(seed), "-tools", fmt.Sprint(madeTools), "-page", "7"}
		declarations[kind+".hcl"] = "label = \"public\"\n" + declare(program(t, "corpus"), args, "")
		servers = append(servers, &corpusServer{
			original: newOriginal(t, kind, environment(), program(t, "corpus"), args...),
			Server:   shape.NewServer(seed, kind, madeTools), notes: rate.NewLimiter(60, 60),
		})
	}
	p := start(t, declarations)
	p.awaitRunning("both", "legacy", "modern")
	for _, v := range servers { // characters that nobody sees are in most of their definitions
		if out, errs, code := p.command("pins", "accept", v.original.name, "--yes"); code != 0 {
			t.Fatalf("pfar pins accept: %d: %.2000s%.2000s", code, out, errs)
		}
	}
	return servers, p
}

func originals(servers []*corpusServer) []*original {
	var list []*original
	for _, v := range servers {
		list = append(list, v.original)
	}
	return list
}

// maxShown bounds what one way reports.
const maxShown = 3

// converse makes n requests, the first of that number, each of them once directly and once through pfar, and returns
// how many were answered alike.
func (w *way) converse(t *testing.T, v *corpusServer, first, n int) (same int) {
	shown := 0
	for i := first; i < first+n; i++ {
		topic := fmt.Sprintf("%s, request %d to %s", w.name, i, v.original.name)
		token := ""
		if s := shape.New(v.Seed, topic, "token"); s.IntN(6) == 0 {
			token = s.Token(i)
			check(t, v.notes.WaitN(context.Background(), 3))
		}
		prefix := ""
		if w.server == "" {
			prefix = v.original.name + "__"
		}
		direct, method, sent, subject, err := v.exchange(v.direct, topic, "", strconv.Quote(topic), token)
		check(t, err)
		through, _, _, _, err := v.exchange(w, topic, prefix, shape.New(v.Seed, topic, "id").ID(i), token)
		difference := ""
		if err != nil {
			difference = err.Error()
		} else if v.held[subject] {
			difference = heldBack(through, prefix+subject, v.original.name)
		} else if difference = w.sameAnswer(method, through, direct, v.original); difference == "" {
			same++
		}
		if difference != "" {
			if shown++; shown > maxShown {
				t.Errorf("%s: and so on", w.name)
				return same
			}
			t.Errorf("%s: %s %.500q\n%s", topic, method, sent, difference)
		}
	}
	return same
}

// heldBack says what is wrong with the answer to a request for what is held back.
func heldBack(through spoken, name, server string) string {
	said := text(member(through.value, "message"))
	if through.member == "error" && string(member(through.value, "code")) == "-32602" &&
		strings.HasSuffix(said, fmt.Sprintf(" %q is held back until the owner accepts its definition: pfar pins show %s", name, server)) {
		return ""
	}
	return fmt.Sprintf("%s %.300q, and %q is held back", through.member, through.value, name)
}

// exchange makes the request of a topic.
func (v *corpusServer) exchange(s speaker, topic, prefix, id, token string) (a spoken, method, params, subject string, err error) {
	source := shape.New(v.Seed, topic)
	r := v.Request(source, prefix)
	meta := source.Meta()
	if s.modern() {
		meta = slices.Concat(modernMembers(), meta)
	}
	if token != "" {
		meta = append(meta, shape.Member{Name: `"progressToken"`, Value: token})
	}
	params = r.Write(source, meta)
	a, err = s.ask(r.Method, params, id, token, r.Subject)
	return a, r.Method, params, r.Subject, err
}

func modernMembers() []shape.Member {
	var list []shape.Member
	object := []byte("{" + modernMeta + "}")
	all, _ := membersOf(object)
	for _, f := range all {
		list = append(list, shape.Member{Name: strconv.Quote(f.name), Value: string(f.raw(object))})
	}
	return list
}

// sameGreeting compares what a server says of itself: its name and version byte for byte, its instructions as text.
func (w *way) sameGreeting(t *testing.T, servers []*corpusServer) {
	t.Helper()
	method, params := "initialize", helloLegacy
	if w.modern() {
		method, params = "server/discover", `{"_meta":{`+modernMeta+`}}`
	}
	if w.server == "" {
		return // pfar speaks for itself
	}
	v := servers[slices.IndexFunc(servers, func(v *corpusServer) bool { return v.original.name == w.server })]
	again := w.speaker
	if h, ok := again.(*rawHTTP); ok {
		again = &rawHTTP{young: h.young, http: h.http, url: h.url, token: h.token} // a session of its own
	}
	a, err := again.ask(method, params, `"greeting"`, "", "")
	if err != nil || a.member != "result" {
		t.Errorf("%s: %s: %s, %v", w.name, method, a.value, err)
		return
	}
	info := member(a.value, "serverInfo")
	if w.modern() {
		info = member(member(a.value, "_meta"), "io.modelcontextprotocol/serverInfo")
	}
	if d := differ(info, plainInfo(t, v.Info, w.server)); d != "" {
		t.Errorf("%s: serverInfo: %s", w.name, d)
	}
	var got, want string
	check(t, json.Unmarshal([]byte(v.Instructions), &want))
	if raw := member(a.value, "instructions"); raw != nil {
		check(t, json.Unmarshal(raw, &got))
	}
	if got != want {
		t.Errorf("%s: instructions %q, want %q", w.name, got, want)
	}
}

// plainInfo is what clients get of serverInfo: name and version, unless they could hold a sentence.
func plainInfo(t *testing.T, raw, server string) []byte {
	t.Helper()
	var said struct{ Name, Version string }
	_ = json.Unmarshal([]byte(raw), &said)
	word := regexp.MustCompile(`^[A-Za-z0-9@_./+-]{1,64}$`)
	if !word.MatchString(said.Name) {
		said.Name = server
	}
	if !word.MatchString(said.Version) {
		said.Version = "unknown"
	}
	b, err := json.Marshal(map[string]string{"name": said.Name, "version": said.Version})
	check(t, err)
	return b
}
