package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/pfar/pfar/cmd/pfar-sandbox/bubblewrap"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// wait keeps the unit up, as waiting, until it is stopped: pfard starts it again when the credential is there. It is no
// error, and must not be a crash loop.
func (l *launcher) wait(ctx context.Context, s units.Secrets) int {
	return l.waitFor(ctx, units.Wait{For: units.WaitCredentials, Remedy: s.Remedy},
		"for credentials: "+strings.Join(s.Missing, "; "))
}

// waitForLogin does the same for a remote server that has refused the token which it was given, or wants one: to ask
// it again would not help, and pfard starts the unit when there is another token.
func (l *launcher) waitForLogin(ctx context.Context, why string) int {
	l.gateway.Close()
	remedy := units.LoginCommand + l.plan.Name
	return l.waitFor(ctx, units.Wait{For: units.WaitLogin, Remedy: remedy}, remedy+": "+why)
}

func (l *launcher) waitFor(ctx context.Context, w units.Wait, words string) int {
	l.waits(w, words)
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
			l.waits(units.Wait{For: units.WaitProgram, Remedy: m.Begin.Remedy}, units.ForProgram+m.Begin.Wait)
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
		l.notify(map[string]string{units.NotifyState: units.StateOffline, "STATUS": err.Error(), "READY": "1"})
		if l.staged { // only another launcher is shown what is there by then
			wait = lastLook
		}
		select {
		case <-ctx.Done():
		case <-l.pfard.ended():
		case <-time.After(wait):
			if l.staged {
				return units.ExitGateway, false
			}
			continue
		}
		l.state(units.StateStopping, "stopping")
		return again(ctx), false
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
