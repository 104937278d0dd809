package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/pfar/pfar/cmd/pfar-sandbox/bubblewrap"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/backoff"
	"github.com/pfar/pfar/units/handover"
)

// wait keeps the unit up, as waiting, until it is stopped: pfard starts it again when the credential is there. It is no
// error, and must not be a crash loop.
func (l *launcher) wait(ctx context.Context, s units.Secrets) int {
	return l.waitFor(ctx, units.WaitForSecrets(s))
}

// waitForLogin does the same for a remote server that has refused the token which it was given, or wants one: to ask
// it again would not help, and pfard starts the unit when there is another token. The process of a session ends.
func (l *launcher) waitForLogin(ctx context.Context, m handover.Message) int {
	l.gateway.Close()
	remedy := l.plan.Gateway.SignIn(m.Scopes)
	w := units.Wait{For: units.WaitLogin, Remedy: remedy, Words: remedy.Command + ": " + m.Failed}
	if l.plan.Gateway.Session != "" {
		l.waits(w)
		return l.sessionOver(w.Words)
	}
	return l.waitFor(ctx, w)
}

func (l *launcher) waitFor(ctx context.Context, w units.Wait) int {
	l.waits(w)
	select {
	case <-ctx.Done():
	case <-l.pfard.ended():
	}
	l.state(units.StateStopping, "stopping")
	return again(ctx)
}

// again is the exit code of a launcher that is to be started again, unless it was stopped.
func again(ctx context.Context) int {
	if ctx.Err() != nil {
		return 0
	}
	return units.ExitGateway
}

// admitted waits until the gateway, which has the pins, says that the server's program may be started. Otherwise it
// returns this process's exit code. A program that was changed in its place gets neither secrets nor network before its
// owner has accepted it, and then from another launcher: the program may have changed once more.
func (l *launcher) admitted(ctx context.Context, secrets units.Secrets) (code int, ok bool) {
	if len(l.plan.Files) == 0 {
		return 0, true
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-ctx.Done():
		case <-l.pfard.ended():
		case <-over:
			return
		}
		l.gateway.Close()
	}()
	for {
		m, files, err := l.gateway.Receive()
		attach.CloseAll(files)
		switch {
		case err != nil:
			l.state(units.StateStopping, "stopping")
			return again(ctx), false
		case m.Begin == nil:
		case m.Begin.Start:
			return 0, true
		default:
			bubblewrap.Wipe(secrets.Values)
			l.waits(units.Wait{For: units.WaitProgram, Remedy: m.Begin.Remedy, Words: units.ForProgram + m.Begin.Wait})
		}
	}
}

// backOff waits until the time for the next start has come. It returns an error if ctx ended first.
func (l *launcher) backOff(ctx context.Context) error {
	wait := time.Until(l.history.Last.Add(l.history.delay()))
	if wait <= 0 {
		return nil
	}
	wait = min(wait, l.history.delay()) // whatever the clock did since
	l.state(l.history.state(), l.history.words())
	l.notify(map[string]string{"EXTEND_TIMEOUT_USEC": fmt.Sprint((wait + 3*time.Minute).Microseconds())})
	next := time.NewTimer(wait)
	defer next.Stop()
	var wanted <-chan struct{}
	if l.history.Remote && l.history.After == 0 {
		wanted = l.pfard.wanted
	}
	for {
		select {
		case <-next.C:
			return nil
		case <-wanted: // calls do not make it more than one try in a second
			wanted = nil
			first := backoff.Offline().After(1)
			next.Reset(min(first, max(0, time.Until(l.history.Last.Add(first)))))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// How long a launcher waits before it looks for a server again that runs without pfar. No event tells of a socket that
// somebody begins to listen at.
const (
	firstLook = 200 * time.Millisecond
	lastLook  = 5 * time.Second
)

// reached waits until the server is there that runs on the host without pfar. Otherwise it returns this process's exit
// code. It is no error that such a server is started later than pfar, or once more.
func (l *launcher) reached(ctx context.Context) (code int, ok bool) {
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		err := bubblewrap.Doors(l.plan.Sandbox.Mounts)
		if err == nil {
			return 0, true
		}
		if l.staged { // only another launcher is shown what is there by then
			wait = lastLook
		}
		l.notify(map[string]string{
			units.NotifyState: units.StateOffline, "STATUS": err.Error(), "READY": "1",
			units.NotifyWait: units.Wait{Until: time.Now().Add(wait), Words: err.Error()}.Notification(),
		})
		if l.looksAgain(ctx, wait) {
			if l.staged {
				return units.ExitGateway, false
			}
			continue
		}
		l.state(units.StateStopping, "stopping")
		return again(ctx), false
	}
}

// looksAgain waits until it is time to look for a server again, and reports false if the launcher ends instead. A call
// does not wait for long.
func (l *launcher) looksAgain(ctx context.Context, wait time.Duration) bool {
	next := time.NewTimer(wait)
	defer next.Stop()
	begun := time.Now()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-l.pfard.ended():
			return false
		case <-next.C:
			return true
		case <-l.pfard.wanted:
			next.Reset(max(0, min(wait, backoff.Offline().After(1))-time.Since(begun)))
		}
	}
}

// runOnce runs a program that nobody speaks to until it ends, and returns this process's exit code. stderr goes to the
// log. Whoever has asked for the run looks at what it has made: it is not started again.
func (l *launcher) runOnce(ctx context.Context, secrets units.Secrets) (int, error) {
	s, err := l.start(secrets, func(s *bubblewrap.Process) error {
		s.Stdin.Close()
		go func() {
			_, _ = io.Copy(io.Discard, s.Stdout)
			s.Stdout.Close()
		}()
		if err := l.confine(s); err != nil {
			return err
		}
		return s.Release()
	})
	if err != nil {
		return l.cannotStart(err)
	}
	l.notify(map[string]string{units.NotifyState: units.StateRunning, "STATUS": "running", "READY": "1"})
	select {
	case <-ctx.Done():
	case <-l.pfard.ended():
	case err := <-s.Exited():
		l.words.Finish(endSearch)
		if err != nil {
			return l.crashed(bubblewrap.ExitWords(err), bubblewrap.WasKilled(err)), nil
		}
		l.state(units.StateStopped, "ended")
		return 0, nil
	}
	l.state(units.StateStopping, "stopping")
	s.Stop(func() {})
	l.words.Finish(stopSearch)
	return 0, nil
}
