package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/control"
)

// clientele is who may use what: the declared clients, as the gateway is told them.
type clientele struct {
	dir  string
	open func(dir string) fs.FS

	pages     atomic.Bool // a set-up can have a one-time page
	operators *operators  // at other machines

	mu    sync.Mutex
	told  bool                  // list has been read
	list  []access.Client       // in force
	files control.ClientFiles   // that list is made of
	chats map[string]chatClient // whose processes are clients, by name of the chat
	why   error                 // why it is not as the folder has it: that cannot be recorded
	newer chan struct{}         // closed when there is another one, or the operators are others
}

func newClientele(dir string, o *operators) *clientele {
	return &clientele{dir: dir, open: os.DirFS, operators: o, newer: make(chan struct{})}
}

// read reads all declarations of clients, and returns what is wrong with them. Of a file that has an error the last
// good version stays; where there was none, its client is let in nowhere, also if it is one that is built in: what the
// file would have kept from it nobody knows. Who may do more than before is in force when all that has changed is
// recorded.
func (c *clientele) read(servers []declaration.Server, policy *gate.Policy, describe func(map[string]*hcl.File,
	hcl.Diagnostics) []control.Diagnostic, record func([]access.Client) error) []control.Diagnostic {
	c.mu.Lock()
	defer c.mu.Unlock()
	good := make(map[string]access.Client, len(c.list))
	o := declaration.ClientOptions{Servers: []string{}, Policy: policy}
	for _, one := range c.list {
		good[one.Name] = one
		if one.Profile != "" { // it is more than a name that is let in nowhere
			o.Known = append(o.Known, one.File)
		}
	}
	for _, s := range servers {
		o.Servers = append(o.Servers, s.Name)
	}
	set := declaration.LoadClients(c.open(c.dir), c.dir, o)
	diagnostics := describe(set.Files, set.Diags)
	next := make(map[string]access.Client)
	for _, one := range set.Clients {
		next[one.Name] = one.Client
	}
	stay := map[string]string{} // whose last good version stays, and for which file
	for _, b := range set.Broken {
		for name, old := range good {
			if _, anew := next[name]; !anew && (name == b.Name || old.File == b.File) {
				next[name], stay[name] = old, b.File
			}
		}
		if _, known := next[b.Name]; !known {
			next[b.Name] = access.Client{Name: b.Name, File: b.File}
		}
	}
	if set.Unread {
		next = good
		for _, name := range [...]string{access.Default, access.Operator} {
			if _, known := good[name]; !known && !c.told {
				next[name] = access.Client{Name: name, File: c.dir}
			}
		}
	}
	diagnostics = append(diagnostics, apart(stay, next)...)
	list := slices.SortedFunc(maps.Values(next), byName)
	if c.why = record(list); c.why != nil && !c.told { // who was let in before is not known here
		return diagnostics
	}
	if c.why != nil {
		list = c.noMore(next)
	} else {
		c.files = digests(set.Files)
	}
	c.tell(list)
	return diagnostics
}

func byName(a, b access.Client) int { return strings.Compare(a.Name, b.Name) }

// noMore is who is let in while it cannot be recorded that others are: whoever is, but those who are let in nowhere
// now. What takes the place of a client that is built in may have kept something from it, and stays as well.
func (c *clientele) noMore(next map[string]access.Client) []access.Client {
	list := make(map[string]access.Client)
	for _, old := range c.list {
		if _, there := next[old.Name]; there || old.Name == access.Default || old.Name == access.Operator {
			list[old.Name] = old
		}
	}
	for name, one := range next {
		if !one.Enabled {
			list[name] = one
		}
	}
	return slices.SortedFunc(maps.Values(list), byName)
}

// digests are the SHA-256 of files, by path, in hexadecimal.
func digests(files map[string]*hcl.File) control.ClientFiles {
	list := control.ClientFiles{}
	for path, f := range files {
		sum := sha256.Sum256(f.Bytes)
		list[path] = hex.EncodeToString(sum[:])
	}
	return list
}

// known are the files that have been read.
func (c *clientele) known() control.ClientFiles {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.files
}

// notes say what of the clients and the operators is not as their files have it.
func (c *clientele) notes() []string {
	list := c.operators.notes()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.why != nil && !c.told:
		list = append(list, "the clients in "+c.dir+" are not let in until they can be recorded: "+c.why.Error())
	case c.why != nil:
		const words = " may do no more than before, until the change can be recorded: "
		list = append(list, "the clients in "+c.dir+words+c.why.Error())
	}
	return list
}

// apart lets nobody take what a client has whose last good version stays, for the file that stay names: a newcomer with
// the same token or user is not let in.
func apart(stay map[string]string, next map[string]access.Client) (diagnostics []control.Diagnostic) {
	for name, file := range stay {
		for newcomer, other := range next {
			if _, stays := stay[newcomer]; stays || !shares(next[name], other) {
				continue
			}
			next[newcomer] = access.Client{Name: newcomer, File: other.File}
			d := control.Diagnostic{
				File: other.File, Line: 1, Column: 1, Severity: "error", Summary: "Token or user of another client",
				Detail: fmt.Sprintf("%q has it, of which the last good version stays as long as %s has an error. Correct that file first.", name, file),
			}
			d.Text = fmt.Sprintf("%s:1:1: error: %s\n  %s\n", d.File, d.Summary, d.Detail)
			diagnostics = append(diagnostics, d)
		}
	}
	return diagnostics
}

func shares(a, b access.Client) bool {
	return slices.ContainsFunc(a.Tokens, func(t access.Digest) bool { return slices.Contains(b.Tokens, t) }) ||
		slices.ContainsFunc(a.UIDs, func(uid uint32) bool { return slices.Contains(b.UIDs, uid) })
}

// tell is called with c.mu held.
func (c *clientele) tell(list []access.Client) {
	if c.told && reflect.DeepEqual(list, c.list) {
		return
	}
	c.told, c.list = true, list
	c.again()
}

// again has those who watch hear everything once more. It is called with c.mu held.
func (c *clientele) again() {
	close(c.newer)
	c.newer = make(chan struct{})
}

// operatorsChanged has those who watch hear of the operators.
func (c *clientele) operatorsChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again()
}

func (c *clientele) now() (list []access.Client, told bool, newer <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.withChats(), c.told, c.newer
}

// watch sends the clients and the operators as soon as the clients have been read, and whenever either change, until
// the peer hangs up.
func (c *clientele) watch(ctx context.Context, send func(control.Response) error) error {
	for {
		list, told, newer := c.now()
		if told {
			more := control.Declarations{Pages: c.pages.Load()}
			more.Operators, _ = c.operators.admitted()
			if err := send(control.Response{Clients: list, Declarations: more}); err != nil {
				return err
			}
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return nil
		}
	}
}
