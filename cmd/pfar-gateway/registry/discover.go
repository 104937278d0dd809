package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Listing is all that a server offers, as it was last discovered.
type Listing [Templates + 1][]Item

// changes returns the kinds in which two listings differ, so that a server that only says that something changed
// disturbs nobody. Who has reviewed a tool shows in what is said of it.
func (l *Listing) changes(old *Listing) Kinds {
	var s Kinds
	for k := Tools; k <= Templates; k++ {
		if !slices.EqualFunc(l[k], old[k], func(a, b Item) bool { return bytes.Equal(a.Raw, b.Raw) && a.Strange() == b.Strange() }) {
			s |= k.Set()
		}
	}
	return s
}

// discover lists the kinds that the server has, side by side, and keeps the rest of old.
func (u *Upstream) discover(ctx context.Context, kinds Kinds, old *Listing) (*Listing, error) {
	var (
		l       = *old
		raw     [Templates + 1][][]byte
		errs    [Templates + 1]error
		listing sync.WaitGroup
	)
	for k := Tools; k <= Templates; k++ {
		if !kinds.Has(k) {
			continue
		}
		l[k] = nil
		if u.Agreed().Has(k.form().capability) {
			listing.Go(func() { raw[k], errs[k] = u.pages(ctx, k.form()) })
		}
	}
	listing.Wait()
	for k := Tools; k <= Templates; k++ {
		switch err := errs[k]; {
		case err != nil && (k == Tools || ctx.Err() != nil):
			return nil, err
		case err != nil:
			u.log.Warn("listing what the server says that it has, ignoring", "error", err.Error()) // the tools still work
			l[k] = old[k]
		case raw[k] != nil:
			l[k] = u.items(k, raw[k], old[k])
		}
	}
	return &l, nil
}

// pages calls a list method until there are no more pages.
func (u *Upstream) pages(ctx context.Context, f form) ([][]byte, error) {
	var (
		items [][]byte
		size  int
		seen  = make(map[string]bool)
		next  []byte
		keep  Hint
	)
	for n := range u.limits.Pages {
		var params []byte
		if next != nil {
			params = fmt.Appendf(nil, `{"cursor":%s}`, next)
		}
		result, err := u.Call(ctx, protocol.Call{Method: f.method, Params: params, Own: true})
		if err != nil {
			if e := new(jsonrpc.Error); errors.As(err, &e) && e.Raw != nil && len(items) == 0 && isMethodNotFound(e.Raw) {
				return nil, nil // templates, mostly: the capability "resources" does not tell
			}
			return nil, fmt.Errorf("listing %s: %w", f.member, err)
		}
		if size += len(result); size > u.limits.Bytes {
			return nil, fmt.Errorf("listing %s: more than %d bytes", f.member, u.limits.Bytes)
		}
		ms, err := jsonrpc.Object(result, nil)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", f.member, err)
		}
		if h := u.hint(ms); n == 0 {
			keep = h
		} else {
			keep = keep.and(h)
		}
		if items, next, err = page(items, ms, f, u.limits.Items); err != nil {
			return nil, fmt.Errorf("listing %s: %w", f.member, err)
		}
		if next == nil {
			u.lists.find(func(found *findings) { found.Hints[f.kind] = keep })
			return items, nil
		}
		if seen[string(next)] {
			return nil, fmt.Errorf("listing %s: cursor %s comes twice", f.member, protocol.Quote(next))
		}
		seen[string(next)] = true
	}
	return nil, fmt.Errorf("listing %s: more than %d pages", f.member, u.limits.Pages)
}

// page appends one page's items and returns the cursor of the next as it came, nil after the last.
func page(items [][]byte, ms jsonrpc.Members, f form, limit int) ([][]byte, []byte, error) {
	var err error
	if items, err = jsonrpc.Array(ms.Get(f.member), items, limit); err != nil {
		return nil, nil, fmt.Errorf("reading %q: %w", f.member, err)
	}
	switch next := ms.Get("nextCursor"); {
	case next == nil, string(next) == "null", string(next) == `""`:
		return items, nil, nil
	case next[0] != '"' || len(next) > maxCursor:
		return nil, nil, fmt.Errorf("nextCursor %s is not a string of at most %d bytes", protocol.Quote(next), maxCursor)
	default:
		return items, next, nil
	}
}

const (
	maxCursor  = 4 << 10
	maxDropped = 64 // definitions whose reasons are logged one by one
)

func isMethodNotFound(raw []byte) bool {
	ms, err := jsonrpc.Object(raw, nil)
	return err == nil && string(ms.Get("code")) == fmt.Sprint(mcp.METHOD_NOT_FOUND)
}

// items reads the definitions; one that cannot be served is dropped, and the log says why.
func (u *Upstream) items(k Kind, raw [][]byte, old []Item) []Item {
	list := make([]Item, 0, len(raw))
	var d dropped
	taken := make(names, len(raw))
	known := make(map[string]Item, len(old))
	for _, item := range old {
		known[string(item.Raw)] = item
	}
	for _, b := range raw {
		item, ok := known[string(bytes.TrimSpace(b))]
		var err error
		if !ok { // or it has been looked at before
			item, err = newItem(k, b, u.limits)
		}
		if err == nil {
			err = taken.take(k, u.Server().Name, item.Name)
		}
		if err != nil {
			d.add(k, item.Name, err)
			if n := u.Fault(protocol.Definition, b); n <= maxDropped {
				u.log.Warn("dropping a definition", "list", k.form().member, "name", protocol.Quote(item.Name), "reason", err.Error())
			}
			continue
		}
		list = append(list, item)
	}
	u.lists.find(func(found *findings) { found.Dropped[k] = d })
	return list
}
