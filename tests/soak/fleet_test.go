package soak

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

// served is one server of the fleet.
type served struct {
	name    string
	command string
	args    []string
	more    string // further HCL
	tool    string
	answer  func(v *served, text string) (prefix, suffix string) // what an answer to text begins and ends with

	wild  []string // further arguments, while there is chaos
	loose bool     // there is
	calm  bool     // chaos leaves it and its declaration alone: only the gateway's end may touch it
	moves bool     // its file comes and goes
	marks bool     // its arguments hold the marker

	crowded bool // now and then by more calls than it may have at once, or more sessions
	own     bool // each session has a process to itself
	late    bool // calls are to run out of time, which is shorter here
}

// ownSessions is how many sessions can have a process to themselves: fewer than there are.
const ownSessions = 12

// fleet returns the servers, under names that no other pfar of this host has.
func (s *soak) fleet() func(p *pfar) []*served {
	return func(p *pfar) []*served {
		prefix := "k" + strings.ToLower(rand.Text()[:4]) + "-"
		own := func(kind string, args ...string) *served {
			name := prefix + kind
			return &served{name: name, command: filepath.Join(p.bin, "server"), marks: true, tool: "say", answer: said,
				args: append([]string{"-name", name, "-marker", p.marker}, args...)}
		}
		list := []*served{own("calm"), own("late"), own("plain-a"), own("plain-b"), own("plain-c"), own("edited"), own("limited"),
			own("crash"), own("slow", "-slow", "400ms"), own("own"), own("guest"), own("roamer-a"), own("roamer-b")}
		list[0].calm, list[1].calm, list[1].late = true, true, true
		for _, v := range list {
			if v.name == prefix+"crash" {
				v.wild = []string{"-crash", "100"}
			}
			switch v.name {
			case prefix + "slow":
				v.crowded = true
			case prefix + "own":
				v.own, v.crowded, v.more = true, true, fmt.Sprintf("sessions = \"own\"\nsessions_max = %d\nsession_idle = \"3s\"", ownSessions)
			case prefix + "plain-b":
				v.more = `tool "say" { semantics = "read" }` // so that its calls are made again when it ends
			}
		}
		for _, v := range list[len(list)-3:] {
			v.moves = true
		}
		list = append(list, &served{name: prefix + "echo", command: filepath.Join(p.bin, "echo"), args: []string{"-label", p.marker}, marks: true,
			tool: "echo", answer: func(_ *served, text string) (string, string) { return text, "" }})
		if dir := npmServers(s.t); dir != "" {
			list = append(list, &served{name: prefix + "everything", command: "node", args: []string{filepath.Join(dir, everythingPath)},
				tool: "echo", answer: func(_ *served, text string) (string, string) { return "Echo: " + text, "" }})
		}
		return list
	}
}

// said is how our own server answers: its name, the process, and the text.
func said(v *served, text string) (prefix, suffix string) { return v.name + " ", " " + text }

// declare writes the declaration, with another argument and other limits than usual if they are given.
func (v *served) declare(edition, limits string) string {
	args := slices.Clone(v.args)
	if v.loose {
		args = append(args, v.wild...)
	}
	if edition != "" {
		args = append(args, "-edition", edition)
	}
	list, err := json.Marshal(args)
	if err != nil {
		panic(err) // strings
	}
	command, _ := json.Marshal(v.command)
	if limits == "" {
		limits = `memory_limit = "256m"`
	}
	timeout := callTimeout
	if v.late {
		timeout = lateTimeout
	}
	return fmt.Sprintf("timeout = %q\nserver {\n  command = %s\n  args    = %s\n}\nsandbox { %s }\n%s\n", timeout.String(), command, list, limits, v.more+trust.Honest)
}

// awaitAll returns when all servers run.
func (s *soak) awaitAll() {
	s.t.Helper()
	s.pfar.await("all servers running", recovery, func(r control.Report) bool { return allRun(s.pfar.servers, r) })
}

func allRun(list []*served, r control.Report) bool {
	return !slices.ContainsFunc(list, func(v *served) bool { return server(r, v.name).State != control.Running })
}

// release lets those that are wild be so, or not any more, and has every declaration as it should be then.
func (s *soak) release(loose bool) {
	for _, v := range s.pfar.servers {
		v.loose = loose
		s.pfar.write(v, v.declare("", ""))
	}
}

// settle has every declaration as it was, has the operator start what was disabled, and waits until everything runs.
// pfard takes all files in at once, so that when a new server is up, the others are as their files say, or on the way.
func (s *soak) settle() {
	s.t.Helper()
	begin := time.Now()
	s.release(false)
	last := *s.pfar.servers[0]
	last.name = strings.TrimSuffix(last.name, "calm") + "last"
	last.args = slices.Clone(last.args)
	last.args[1] = last.name
	s.pfar.write(&last, last.declare("", ""))
	s.pfar.await("the last declaration taken in", recovery, func(r control.Report) bool { return server(r, last.name).State == control.Running })
	tried := map[string]time.Time{}
	s.pfar.await("all servers back", recovery, func(r control.Report) bool {
		for _, v := range s.pfar.servers {
			if now := server(r, v.name); now.State == control.Failed && tried[v.name] != now.Since {
				tried[v.name] = now.Since
				go s.pfar.command("start", v.name)
			}
		}
		return allRun(s.pfar.servers, r)
	})
	check(s.t, os.Remove(s.pfar.path(&last)))
	s.pfar.await("the last declaration gone", recovery, func(r control.Report) bool { return server(r, last.name).Name == "" })
	s.t.Logf("everything serves again %v after the chaos", time.Since(begin).Round(time.Millisecond))
}
