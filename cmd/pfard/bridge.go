package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/systemd"
)

// What one bridge may have pfard do, which may have been taken over.
const (
	maxAsking         = 1024 // questions at once; those beyond it are refused
	refusalsPerSecond = 5    // that are told; of those in between the newest
	refusalsAtOnce    = 20
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
	news, over := a.watchSecrets(p.Instance, plan.Name)
	defer over()
	due := news.wire.Reading()
	material, err := a.brokered(plan)
	if _, is := errors.AsType[unrecorded](err); is && hello.Again {
		material, err = nil, nil // it goes on with what it has
	}
	if err != nil {
		return err
	}
	if material != nil {
		files = append(slices.Clip(files), material)
		news.wire.Sending(due)
	} else {
		news.wire.Nothing(due)
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
	go a.passSecrets(conn, p.Instance, plan, news)
	hear(conn, held.Allow, &news.wire, func(words string) { a.audited(plan.Name, plan.Gateway.Session, words) }, func(words string) { a.refused(p.Instance, words) })
	return nil
}

// secretNews is for one bridge.
type secretNews struct {
	server  string        // its whole name: an instance may have the beginning of it
	changed chan struct{} // its server's brokered secrets are others; closed when it has gone
	wire    attach.Wire
}

// watchSecrets returns what says when the brokered secrets of an instance's server are others, until over is called. What the
// bridge is welcomed with is due.
func (a *attachments) watchSecrets(instance, server string) (news *secretNews, over func()) {
	news = &secretNews{server: server, changed: make(chan struct{}, 1)}
	news.wire.Due()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.news[instance] = news
	close(a.came)
	a.came = make(chan struct{})
	return news, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.news[instance] == news {
			delete(a.news, instance)
		}
		close(news.changed) // nobody sends but with the lock held, to what is in the map
		news.wire.Gone()
	}
}

// passSecrets sends a bridge the secrets that it brokers whenever they are others.
func (a *attachments) passSecrets(conn *attach.Conn, instance string, plan plan.Plan, news *secretNews) {
	for range news.changed {
		due := news.wire.Reading()
		material, err := a.brokered(plan)
		switch {
		case err == nil && material != nil:
			news.wire.Sending(due)
			err = conn.Send(attach.Message{Broker: true}, material)
			material.Close()
		case err == nil:
			news.wire.Nothing(due)
		}
		if err != nil {
			a.log.Warn("telling a bridge of new secrets; hanging up, it gets them when it comes again", "server", instance, "error", err)
			conn.Close()
			return
		}
	}
}

// rebroker has the bridges of a server put its secrets on the wire as they are now.
func (a *attachments) rebroker(server string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, news := range a.newsOf(server) {
		news.wire.Due()
		select {
		case news.changed <- struct{}{}:
		default: // it will see the newest anyway
		}
	}
}

// newsOf returns what the bridges of a server are told by. a.mu is held.
func (a *attachments) newsOf(server string) (list []*secretNews) {
	for _, news := range a.news {
		if news.server == server {
			list = append(list, news)
		}
	}
	return list
}

// wired returns when all bridges of a server that run have on the wire what they were told last, or why that is not known. One
// that has yet to attach, to another pfard or anew, is waited for.
func (a *attachments) wired(ctx context.Context, server string) error {
	for {
		a.mu.Lock()
		list, came := a.newsOf(server), a.came
		a.mu.Unlock()
		var all error
		for _, news := range list {
			all = errors.Join(all, news.wire.Wait(ctx))
		}
		if all != nil {
			return all
		}
		absent, err := a.absent(ctx, server)
		if err != nil || absent == "" {
			return err
		}
		select {
		case <-came:
		case <-ctx.Done():
			return fmt.Errorf("the bridge of %q runs and has not attached: %w", absent, ctx.Err())
		}
	}
}

// absent returns an instance of a server whose bridge runs and has not attached; "" for none.
func (a *attachments) absent(ctx context.Context, server string) (string, error) {
	running, err := a.running(ctx, server)
	if err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, instance := range running {
		if a.news[instance] == nil {
			return instance, nil
		}
	}
	return "", nil
}

// hear takes what a welcomed bridge asks and what it has refused, until it hangs up: all of it, and what is told.
func hear(conn *attach.Conn, allow func(attach.Allow) error, wire *attach.Wire, all, refused func(words string)) {
	asking := make(chan struct{}, maxAsking)
	newest := make(chan string, 1)
	defer close(newest)
	go tellNewest(newest, refused)
	for {
		m, files, err := conn.Receive()
		attach.CloseAll(files)
		if err != nil {
			return
		}
		switch {
		case m.Wired || m.Unwired:
			wire.Answered(m.Wired)
		case m.Allow != nil:
			select {
			case asking <- struct{}{}:
				go func() {
					defer func() { <-asking }()
					answer(conn, m.Allow.ID, allow(*m.Allow))
				}()
			default:
				answer(conn, m.Allow.ID, fmt.Errorf("more than %d questions at once", maxAsking))
			}
		case strings.HasPrefix(m.Notify["STATUS"], "refused "):
			all(m.Notify["STATUS"])
			select {
			case <-newest:
			default:
			}
			newest <- m.Notify["STATUS"]
		}
	}
}

func answer(conn *attach.Conn, id uint64, err error) {
	a := attach.Allowed{ID: id}
	if err != nil {
		a.Error = err.Error()
	}
	_ = conn.Send(attach.Message{Allowed: &a})
}

// tellNewest passes on what comes, at its pace, until the channel is closed and empty.
func tellNewest(newest <-chan string, refused func(words string)) {
	pace := rate.NewLimiter(refusalsPerSecond, refusalsAtOnce)
	for {
		_ = pace.Wait(context.Background())
		words, ok := <-newest
		if !ok {
			return
		}
		refused(words)
	}
}

// refused passes on what a bridge has refused: to pfar status, and to the launcher for the unit's own.
func (a *attachments) refused(instance, words string) {
	words = a.redaction.clean(words) // a host's name may be anything
	a.runner.Refused(instance, words)
	a.notice(instance, words)
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

// relabelled shows another label in the status line of a unit.
func (a *attachments) relabelled(instance, label string) {
	a.mu.Lock()
	conn := a.launchers[instance].conn
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Send(attach.Message{Label: &label})
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
