// Package bridge is pfard's side of the conversations with servers' egress bridges: it sends each the secrets that it
// brokers, hears questions and refusals, and knows which secrets are on the wire.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/pfar/pfar/units/attach"
)

// Talks are the conversations with the bridges of all servers.
type Talks struct {
	mu   sync.Mutex
	of   map[string]*Talk // by instance
	came chan struct{}    // closed when there is another one
}

// NewTalks returns no conversations.
func NewTalks() *Talks { return &Talks{of: map[string]*Talk{}, came: make(chan struct{})} }

// Secrets returns a file with the secrets that a bridge brokers as they are now (attach.Message.Broker), nil if there
// are none.
type Secrets func() (*os.File, error)

// Talk is the conversation with one bridge.
type Talk struct {
	server  string        // its whole name: an instance may have the beginning of it
	changed chan struct{} // its server's brokered secrets are others; closed when the conversation is over
	wire    attach.Wire
}

// Begin adds the conversation with the bridge of an instance of a server, until over is called. The secrets that the
// bridge begins with are due.
func (t *Talks) Begin(instance, server string) (k *Talk, over func()) {
	k = &Talk{server: server, changed: make(chan struct{}, 1)}
	k.wire.Due()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of[instance] = k
	close(t.came)
	t.came = make(chan struct{})
	return k, sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.of[instance] == k {
			delete(t.of, instance)
		}
		close(k.changed) // only Changed sends, with the lock held, to conversations in the map
		k.wire.Gone()
	})
}

// Changed has the bridges of a server sent its secrets as they are now. It does not wait for them.
func (t *Talks) Changed(server string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.with(server) {
		k.wire.Due()
		select {
		case k.changed <- struct{}{}:
		default: // it will see the newest anyway
		}
	}
}

// with returns the conversations with the bridges of a server. t.mu is held.
func (t *Talks) with(server string) (list []*Talk) {
	for _, k := range t.of {
		if k.server == server {
			list = append(list, k)
		}
	}
	return list
}

// Wired returns when all bridges of a server that run have on the wire what they were sent last, or why that is not
// known. running returns the instances whose bridges run: Wired waits for one that has yet to attach, to another pfard
// or anew. Without it each bridge that runs is talked with.
func (t *Talks) Wired(ctx context.Context, server string, running func(context.Context, string) ([]string, error)) error {
	for {
		t.mu.Lock()
		list, came := t.with(server), t.came
		t.mu.Unlock()
		var all error
		for _, k := range list {
			all = errors.Join(all, k.wire.Wait(ctx))
		}
		if all != nil {
			return all
		}
		if running == nil {
			return nil
		}
		instances, err := running(ctx, server)
		if err != nil {
			return err
		}
		absent := t.absent(instances)
		if absent == "" {
			return nil
		}
		select {
		case <-came:
		case <-ctx.Done():
			return fmt.Errorf("the bridge of %q runs and has not attached: %w", absent, ctx.Err())
		}
	}
}

// absent returns an instance that nobody talks with, "" if there is none.
func (t *Talks) absent(instances []string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.IndexFunc(instances, func(instance string) bool { return t.of[instance] == nil }); i >= 0 {
		return instances[i]
	}
	return ""
}

// First returns the secrets that the bridge begins with, which the caller sends and closes.
func (k *Talk) First(read Secrets) (*os.File, error) {
	due := k.wire.Reading()
	material, err := read()
	switch {
	case err != nil:
		return nil, err
	case material == nil:
		k.wire.Nothing(due)
	default:
		k.wire.Sending(due)
	}
	return material, nil
}

// Send sends a bridge its secrets whenever they have changed, until the conversation is over, each time after what it
// is to hide of them. failed is told why they could not be sent.
func (k *Talk) Send(conn *attach.Conn, read Secrets, hide attach.Redaction, failed func(error)) {
	for range k.changed {
		material, err := k.First(read)
		if material != nil {
			if err = conn.Hide(hide); err == nil {
				err = conn.Send(attach.Message{Broker: true}, material)
			}
			material.Close() // it is not to stay here as long as the bridge does
		}
		if err != nil {
			failed(err)
		}
	}
}
