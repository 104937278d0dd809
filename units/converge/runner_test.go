package converge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// bench is a machine whose stops end when the test lets them, and the caller of a Runner over it.
type bench struct {
	t     *testing.T
	posts chan func()
	said  []string
	full  error // of Prepare
	fails error // of Start
}

func (b *bench) say(format string, args ...any) {
	b.said = append(b.said, fmt.Sprintf(format, args...))
}

func (b *bench) Start(p plan.Plan, _ units.Secrets) error {
	b.say("start %s %s", units.Instance(p.Name, p.Gateway.Session), p.Sandbox.Command)
	return b.fails
}
func (b *bench) Adjust(plan.Plan) error            { return nil }
func (b *bench) Prepare(plan.Plan) error           { return b.full }
func (b *bench) Stop(string)                       {}
func (b *bench) Offer(server string, p *plan.Plan) { b.say("offer %s %t", server, p != nil) }
func (b *bench) Forget(server string)              { b.say("forget %s", server) }
func (b *bench) Log(string) string                 { return "" }
func (b *bench) Post(f func())                     { b.posts <- f }
func (b *bench) Happened(e Event)                  { b.say("%T", e) }

func (b *bench) Launch(plan.Plan) (units.Secrets, error) { return units.Secrets{}, nil }

// expect wants to have heard this, in any order of what is begun at once.
func (b *bench) expect(what string, want ...string) {
	b.t.Helper()
	got := b.said
	b.said = nil
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.t.Fatalf("%s: %q, want %q", what, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// ends lets stops end.
func (b *bench) ends(n int) {
	for range n {
		(<-b.posts)()
	}
}

// TestRunner: what is wanted comes about by itself, once, whatever is applied in between.
func TestRunner(t *testing.T) {
	const started, stopping, stopped = "converge.Started", "converge.Stopping", "converge.Stopped"
	b := &bench{t: t, posts: make(chan func())}
	r := New(b, b)
	want := func(program string, change func(*Server)) *Server {
		s := &Server{Plan: plan.Plan{Name: "a", Sandbox: sandbox.Sandbox{Command: program}}, Run: true, Offer: true}
		s.Sessions = map[string]bool{}
		change(s)
		return s
	}
	as := func(*Server) {}
	one := Want{"a": want("one", as)}
	r.Apply(one)
	b.expect("a new server", "start a one", started)
	r.Apply(one)
	b.expect("the same want")
	r.Apply(Want{"a": want("one", as)})
	b.expect("another want that says the same")
	r.Apply(Want{"a": want("one", func(s *Server) { s.Sessions["abcdefg2"] = true })})
	b.expect("a session", "start a_abcdefg2 one")
	b.full = errors.New("no space")
	r.Apply(Want{"a": want("two", func(s *Server) { s.Sessions["abcdefg2"] = true })})
	b.expect("another program on a full disk", "converge.Delayed")
	b.full = nil
	r.Apply(Want{"a": want("two", func(s *Server) { s.Sessions["abcdefg2"] = true })})
	b.expect("another program", stopping)
	r.Apply(Want{"a": want("three", as)})
	b.expect("another one meanwhile")
	b.ends(2)
	b.expect("the end of both", stopped, "converge.Left", "start a three", started)
	r.Apply(Want{"a": want("three", func(s *Server) { s.Again = true })})
	b.ends(1)
	b.expect("another process", stopping, stopped, "start a three", started)
	r.Apply(Want{"a": want("three", func(s *Server) { s.Run = false })})
	b.ends(1)
	b.expect("a stop", stopping, stopped, "offer a true", "converge.Rests")
	b.fails = errors.New("no such program")
	broken := Want{"a": want("four", as)}
	r.Apply(broken)
	r.Apply(broken)
	b.expect("what cannot be started is tried once", "start a four", "converge.Refused")
	r.Apply(Want{})
	b.expect("nothing is wanted", "forget a", "converge.Forgotten")
}
