package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/tests/corpus/shape"
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
	notes *rate.Limiter // the gateway lets 200 a second pass
}

// TestGeneratedCorpus sends requests of every shape to servers that answer in every shape, directly and through pfar,
// and wants the same bytes.
func TestGeneratedCorpus(t *testing.T) {
	if os.Getuid() == ordinary {
		return // it has run as root, and is about no privilege
	}
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		check(t, err)
	}
	t.Logf("%s=%d", seedVariable, seed)
	servers, p := startCorpus(t, seed)
	ways := p.ways(originals(servers))
	count := 0
	var under sync.WaitGroup
	for _, w := range ways {
		w.sameGreeting(t, servers)
		w.sameLists(t, originals(servers))
		reached := servers
		if w.server != "" {
			reached = []*corpusServer{servers[slices.IndexFunc(servers, func(v *corpusServer) bool { return v.original.name == w.server })]}
		}
		for _, v := range reached {
			n, first := leastMade/(len(servers)*8)+8, count
			count += n
			under.Go(func() { w.converse(t, v, first, n) })
		}
	}
	under.Wait()
	if count < leastMade {
		t.Errorf("%d exchanges, want %d", count, leastMade)
	}
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

// converse makes n requests, the first of that number, each of them once directly and once through pfar.
func (w *way) converse(t *testing.T, v *corpusServer, first, n int) {
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
		direct, method, sent, err := v.exchange(v.direct, topic, "", strconv.Quote(topic), token)
		check(t, err)
		through, _, _, err := v.exchange(w, topic, prefix, shape.New(v.Seed, topic, "id").ID(i), token)
		difference := ""
		if err != nil {
			difference = err.Error()
		} else {
			difference = w.sameAnswer(method, through, direct, v.original)
		}
		if difference != "" {
			if shown++; shown > maxShown {
				t.Errorf("%s: and so on", w.name)
				return
			}
			t.Errorf("%s: %s %.500q\n%s", topic, method, sent, difference)
		}
	}
}

// exchange makes the request of a topic.
func (v *corpusServer) exchange(s speaker, topic, prefix, id, token string) (a spoken, method, params string, err error) {
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
	return a, r.Method, params, err
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
	if d := differ(info, []byte(v.Info)); d != "" {
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
