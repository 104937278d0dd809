package main

import (
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/control"
)

// policy is what calls are decided by: the last version of the folder of policies that had no mistake. Until there is
// one, nobody is told any, and the gateway denies.
type policy struct {
	open     func(dir string) fs.FS
	outlived bool // the gateway outlives pfard, and may have the policy of an earlier one

	mu      sync.Mutex
	stored  []byte        // as JSON; nil: there is none yet
	current *gate.Policy  // the same
	changed chan struct{} // closed when there is another one, or other sandboxes

	sandboxes []gate.Sandbox // of all servers; nil: not known yet
	confined  []byte         // the same as JSON

	// Of the folder as it is now.
	mark   string       // policies.Fingerprint; "": it has not been read
	next   *gate.Policy // that its last good version and the models come to; nil: there is none
	why    error        // why that one is not in force: it cannot be recorded
	files  map[string]*hcl.File
	diags  hcl.Diagnostics
	places map[string]hcl.Range // of inspectors and notices, by name
	lists  lists
}

func newPolicy() *policy { return &policy{open: os.DirFS, changed: make(chan struct{})} }

// read takes the folders of policies and of models as they are now, and returns what is wrong with them. Another policy
// is in force when it has been recorded: until then the one before stays, which is tried again with each call.
func (p *policy) read(
	dirs control.Dirs, log *slog.Logger, record func(*gate.Policy) error,
) (map[string]*hcl.File, hcl.Diagnostics) {
	dir := dirs.Policies()
	mark := policies.Fingerprint(p.open(dir)) // declarations change without it
	p.mu.Lock()
	defer p.mu.Unlock()
	if mark != p.mark {
		set := policies.Load(p.open(dir), dir)
		p.mark, p.files, p.diags, p.places = mark, set.Files, set.Diags, set.Places
		p.lists.models.under(set.Policy)
	}
	files, diags := p.lists.models.read(p.open(dirs.Models()), dirs.Models(), p.places)
	at := control.ChatFiles(dirs)
	more, found := p.lists.chats.read(p.open(at), at, p.lists.models.taken(p.places))
	diags = append(diags, found...)
	p.next = p.lists.models.policy(log)
	p.why = nil
	if p.next != nil && (p.current == nil || p.next.Digest != p.current.Digest) {
		if p.why = record(p.next); p.why == nil {
			p.take(p.next, log)
		}
	}
	files = maps.Clone(files)
	maps.Copy(files, more)
	maps.Copy(files, p.files)
	return files, slices.Concat(p.diags, diags)
}

// begins reports whether a chat may begin set-ups, and which file declares it; "": none does.
func (p *policy) begins(chat string) (may bool, file string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, is := p.lists.chats.good[chat]
	if !is || c.Account == nil {
		return false, ""
	}
	return c.Account.Connect, p.lists.chats.places[chat].Filename
}

// take has those who ask be told another one.
func (p *policy) take(policy *gate.Policy, log *slog.Logger) {
	b, err := json.Marshal(policy)
	if err != nil { // it has been marshalled for its digest
		log.Error("the policy cannot be told to the gateway", "error", err)
		return
	}
	p.stored, p.current = b, policy
	close(p.changed)
	p.changed = make(chan struct{})
	log.Info("calls are decided by a new policy", "digest", policy.Digest, "relaxed", len(policy.Relaxed))
	for _, r := range policy.Relaxed {
		log.Warn("the policy allows more than what is shipped", "at", r.At, "what", r.What, "reason", r.Reason)
	}
}

// notes say what of the policy is not as its files have it.
func (p *policy) notes(dir string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch broken := p.diags.HasErrors(); {
	case broken && p.stored == nil:
		return []string{"the policies in " + dir + " have mistakes, and there was no good version since pfar was started: " + p.without()}
	case broken:
		return []string{"the policies in " + dir + " have mistakes: their last good version is in force"}
	case p.why != nil && p.stored == nil:
		return []string{"the policies in " + dir + " are not in force until that can be recorded, and " + p.without() + ": " + p.why.Error()}
	case p.why != nil:
		return []string{"the policies in " + dir + " are in force as they were, until the change can be recorded: " + p.why.Error()}
	}
	return nil
}

// without says what becomes of calls while nobody is told a policy.
func (p *policy) without() string {
	if p.outlived {
		return "calls are decided by what was in force before, and none is allowed if nothing was"
	}
	return "no call is allowed"
}

// inForce returns what calls are decided by, nil if there is nothing yet. It does not change.
func (p *policy) inForce() *gate.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// confine has those who ask be told what all servers may reach by now.
func (p *policy) confine(all []gate.Sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sandboxes != nil && slices.EqualFunc(p.sandboxes, all, gate.Sandbox.Equal) {
		return
	}
	b, err := json.Marshal(all)
	if err != nil { // each part has been marshalled
		b = []byte("[]")
	}
	p.sandboxes, p.confined = all, b
	close(p.changed)
	p.changed = make(chan struct{})
}

// now returns the policy and the sandboxes, nil until both are known.
func (p *policy) now() (stored, confined []byte, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stored == nil || p.confined == nil {
		return nil, nil, p.changed
	}
	return p.stored, p.confined, p.changed
}

// watch sends the policy and the sandboxes, once they are known, and whenever they change, until the peer hangs up.
func (p *policy) watch(ctx context.Context, send func(control.Response) error) error {
	for {
		b, confined, changed := p.now()
		if b != nil {
			if err := send(control.Response{Policy: b, Sandboxes: confined}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
