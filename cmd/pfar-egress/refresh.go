package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	sdjournal "github.com/pfar/pfar/units/journal"
)

const (
	refreshTime = 80 * time.Second // from start to end; that of the unit is 90 s
	endpointWeb = 45 * time.Second // of that for the endpoint
	lastTime    = 25 * time.Second // from SIGTERM to the end: an answer and its way to pfard; TimeoutStopSec= is 30 s
)

// refresh refreshes the token set that pfard hands over, gives pfard what came of it, and ends. An error is of what
// nobody tries again: a unit that has failed is one that its owner must do something about. The set is in no argument,
// no variable and no file, and no error quotes it.
//
// When stop has ended, nothing begins any more. A request that is under way goes on, and its answer to pfard: the
// endpoint may have taken the refresh token for good.
func refresh(stop context.Context, path string) error {
	late := fmt.Errorf("the refresh took more than %s", refreshTime)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(stop), refreshTime, late)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer context.AfterFunc(stop, func() { time.AfterFunc(lastTime, func() { fail(errEnded) }) })()
	log := slog.New(sdjournal.New(os.Stderr))
	pfard, text, err := join(ctx, stop, attach.Hello{Refresh: true}, path, log, fail)
	if stop.Err() != nil {
		return nil
	}
	if err != nil || text == nil { // no longer needed
		return err
	}
	set, err := oauth.Decode(text)
	if err != nil {
		return fmt.Errorf("reading the token set: %w", err)
	}
	out, err := pfard.dialer()
	if err != nil {
		return err
	}
	e, err := newEndpoint(set, out, nil)
	if err != nil {
		return err
	}
	asking, done := context.WithTimeout(ctx, endpointWeb)
	asked := time.Now().UTC()
	answer, failed := e.refresh(asking, stop)
	done()
	result := attach.Refreshed{Base: units.Digest(text), Asked: asked}
	if failed != nil {
		answer = oauth.Answer{RefreshToken: failed.rotated}
		result.Error, result.Code, result.Final, result.After = failed.words, failed.code, failed.final, failed.after
	}
	if err := pfard.report(ctx, result, answer); err != nil {
		return err
	}
	if failed != nil && failed.final {
		return errors.New(failed.words)
	}
	return nil
}

// dialer returns the host's network, through the upstream proxy if there is one. The firewall of a unit has to let each
// connection through.
func (a *attachment) dialer() (out dialer, err error) {
	out = newDialer()
	if a.path != "" {
		out.firewall = a
	}
	out.upstream, err = readUpstream(os.Getenv("CREDENTIALS_DIRECTORY"))
	return out, err
}

// report gives pfard what came of a refresh.
func (a *attachment) report(ctx context.Context, result attach.Refreshed, answer oauth.Answer) error {
	if answer.AccessToken == "" && answer.RefreshToken == "" {
		return a.bring(ctx, result, nil)
	}
	content, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return a.bring(ctx, result, content)
}

// bring gives pfard what came of an errand, with the content if there is any.
func (a *attachment) bring(ctx context.Context, result attach.Refreshed, content []byte) error {
	m := attach.Message{Errand: attach.Errand{Refreshed: &result}}
	if content == nil {
		return a.deliver(ctx, m)
	}
	memory, err := units.Sealed("tokens", content)
	if err != nil {
		return err
	}
	defer memory.Close()
	return a.deliver(ctx, m, memory)
}

// join says to pfard what this process is, and returns what it hands over, nil if a refresh is no longer needed: over
// its socket at path, or without one over the connection that was passed, which a local pfard does not take up again.
// It waits for pfard until stop has ended.
func join(
	ctx, stop context.Context, hello attach.Hello, path string, log *slog.Logger, fail func(error),
) (*attachment, []byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stop, cancel)()
	a := newAttachment(path, "", log, fail)
	a.hello = hello
	var files []*os.File
	var err error
	if path != "" {
		files, err = a.begin(ctx)
	} else {
		files, err = a.beginPassed()
	}
	if err != nil {
		return nil, nil, err
	}
	text, err := handedOver(files, hello)
	if err != nil {
		return nil, nil, fmt.Errorf("taking over what pfard hands over: %w", err)
	}
	return a, text, nil
}

// handedOver reads the one file that came with pfard's welcome, and closes what came. Without a file, a refresh is no
// longer needed.
func handedOver(files []*os.File, hello attach.Hello) ([]byte, error) {
	defer attach.CloseAll(files)
	switch {
	case len(files) == 0 && hello.Refresh:
		return nil, nil
	case len(files) != 1:
		return nil, fmt.Errorf("%d files came, want one", len(files))
	}
	return units.ReadSealed(files[0], attach.MaxTokens)
}

// beginPassed is begin over the connection that was passed to this process.
func (a *attachment) beginPassed() ([]*os.File, error) {
	passed, err := units.Descriptors()
	if err != nil {
		return nil, err
	}
	if len(passed[units.FDRefresh]) != 1 {
		return nil, fmt.Errorf("taking over the connection to pfard: got %d named %q, want one", len(passed[units.FDRefresh]), units.FDRefresh)
	}
	c, err := attach.FromFile(passed[units.FDRefresh][0])
	if err != nil {
		return nil, err
	}
	if err := c.Send(attach.Message{Hello: &a.hello}); err != nil {
		return nil, err
	}
	m, files, err := c.Receive()
	if err != nil {
		return nil, err
	}
	if m.Welcome == nil {
		attach.CloseAll(files)
		return nil, errors.New("pfard did not begin with a welcome")
	}
	a.set(c)
	go a.follow(c)
	return files, nil
}

// deliver sends how a refresh went until a pfard has taken it. The one that has asked for it may be gone; the next one
// must have it all the same: the token that was sent to the endpoint may be good no more.
func (a *attachment) deliver(ctx context.Context, m attach.Message, files ...*os.File) error {
	for {
		a.mu.Lock()
		c, turn := a.conn, a.turn
		a.mu.Unlock()
		if c != nil {
			_ = c.Send(m, files...) // if pfard has gone, follow finds the next one
		}
		select {
		case <-a.taken:
			return nil
		case <-turn:
		case <-ctx.Done():
			select {
			case <-a.taken: // and then pfard hung up
				return nil
			default:
			}
			return fmt.Errorf("telling pfard how it went: %w", context.Cause(ctx))
		}
	}
}
