package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/bridge"
	"github.com/pfar/pfar/units/systemd"
)

// bridge is the conversation with a server's egress bridge, which connects to nothing before the firewall lets it. One
// that comes again takes the place of its own earlier connection.
func (a *attachments) bridge(conn *attach.Conn, p systemd.Process, hello *attach.Hello) error {
	plan, err := a.runner.Admit(p.Instance, hello.Digest)
	if err != nil {
		return err
	}
	held, why := a.hold.Hello(p.Instance, p.PID, plan.Egress)
	defer held.Gone()
	before := a.bridgeOf(p.Instance)
	files, left := a.handed(p.Instance, conn)
	if before != nil {
		before.Close()
	}
	defer a.bridgeLeft(p.Instance)
	defer left()
	if hello.Again {
		files = nil // it has them
	}
	talk, over := a.talks.Begin(p.Instance, plan.Name)
	defer over()
	read := func() (*os.File, error) { return a.delivery.brokered(plan) }
	material, err := talk.First(func() (*os.File, error) {
		material, err := read()
		if _, is := errors.AsType[unrecorded](err); is && hello.Again {
			return nil, nil // it goes on with what it has
		}
		return material, err
	})
	if err != nil {
		return err
	}
	if material != nil {
		files = append(slices.Clip(files), material)
	}
	err = conn.Send(attach.Message{Welcome: &attach.Welcome{Held: why, Redact: true, Broker: material != nil}}, files...)
	if material != nil {
		material.Close() // it is not to stay here as long as the bridge does
	}
	if err != nil {
		return nil
	}
	done := make(chan struct{})
	defer close(done)
	if err := conn.Feed(a.redaction.ofBridge(plan), done); err != nil {
		return err
	}
	go talk.Send(conn, read, nil, func(err error) {
		a.log.Warn("telling a bridge of new secrets; hanging up, it gets them when it comes again", "server", p.Instance, "error", err)
		conn.Close()
	})
	talk.Hear(conn, bridge.Hearer{
		Allow: held.Allow,
		Refused: func(r egress.Refusal) {
			a.audit.refusals.refused(plan.Name, plan.Gateway.Session, r.Clean(a.redaction.clean))
		},
		Newest: func(r egress.Refusal) { a.refused(p.Instance, r) },
	})
	return nil
}

// refused passes on what a bridge has refused: to pfar status, and to the launcher for the unit's own.
func (a *attachments) refused(instance string, r egress.Refusal) {
	r = r.Clean(a.redaction.clean) // a host's name may be anything
	a.runner.Tell(instance, func(u *units.Update) { u.Refusal = r })
	a.notice(instance, r.String())
}

// mistaken shows in the status line of a server's unit why it does not run as its file says, or no longer that.
func (a *attachments) mistaken(server, words string) {
	a.mu.Lock()
	if a.mistakes[server] = words; words == "" {
		delete(a.mistakes, server)
	}
	conn := a.launchers[server].conn
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Send(attach.Message{Mistake: &words})
	}
}

// try has a server's launcher try it, which is offline.
func (a *attachments) try(server string) {
	a.mu.Lock()
	conn := a.launchers[server].conn
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Send(attach.Message{News: attach.News{Try: true}})
	}
}

// relabelled shows another label in the status line of a unit.
func (a *attachments) relabelled(instance, label string) {
	a.mu.Lock()
	conn := a.launchers[instance].conn
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Send(attach.Message{News: attach.News{Label: &label}})
	}
}

// notice shows words in the status line of a server's unit.
func (a *attachments) notice(instance, words string) {
	a.mu.Lock()
	conn := a.launchers[instance].conn
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Send(attach.Message{Refusal: words})
	}
}

// modeller is the conversation with a process that asks a model, which the firewall holds to that one's host.
func (a *attachments) modeller(conn *attach.Conn, p systemd.Process) error {
	e, err := a.policy.inspector(p.Instance)
	if err != nil {
		return err
	}
	_, _, policy, err := e.Egress()
	if err != nil {
		return err
	}
	held, why := a.hold.of("@"+p.Instance+".model", systemd.ModelUnit(p.Instance), p.PID, policy) // no key of the vault has a dot
	defer held.Gone()
	if err := conn.Send(attach.Message{Welcome: &attach.Welcome{Held: why}}); err != nil {
		return nil // it has ended
	}
	for {
		m, files, err := conn.Receive()
		if err != nil {
			return nil
		}
		attach.CloseAll(files)
		if m.Allow != nil {
			conn.Answer(m.Allow.ID, held.Allow(*m.Allow))
		}
	}
}

// talker is the conversation with the process of a chat, until that has ended. An error is why it must not go on.
func (a *attachments) talker(conn *attach.Conn, p systemd.Process, uid int) error {
	e, err := a.policy.inspector(p.Instance)
	if err != nil {
		return err
	}
	if e.Account == nil {
		return fmt.Errorf("%q is no chat", p.Instance)
	}
	return a.tasks.chats.held(conn, e, uid)
}
