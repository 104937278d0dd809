package main

import (
	"cmp"
	"io/fs"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/inspector"
)

// chats are those of the folder chat.d: accounts at which the owner talks with pfar. The gateway does not know them.
type chats struct{ lastGood[inspector.External] }

// read takes the folder as it is now, and returns what is wrong with it. taken are the names of others whose processes
// are called alike.
func (c *chats) read(fsys fs.FS, dir string, taken map[string]hcl.Range) (map[string]*hcl.File, hcl.Diagnostics) {
	set := declaration.LoadChats(fsys, dir, taken)
	if set.Unread {
		return set.Files, set.Diags
	}
	now, places := map[string]inspector.External{}, map[string]hcl.Range{}
	for _, one := range set.Chats {
		now[one.Name], places[one.Name] = one.External, one.Place("")
	}
	c.take(now, places, set.Broken, taken)
	return set.Files, set.Diags
}

// list is what they are, by name.
func (c *chats) list() (all []inspector.External) {
	for _, e := range c.good {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b inspector.External) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// talks is what of a runner holds conversations. A runner without it runs no chats.
type talks interface {
	// Talks returns why no chat can be held; nil: chats are held.
	Talks() error
}

// unheld finds a chat that the runner does not hold.
func (i *inspectors) unheld(e inspector.External, at hcl.Range) hcl.Diagnostics {
	if e.Account == nil || i.runner == nil {
		return nil
	}
	why := "this pfar holds no chats"
	if t, is := i.runner.(talks); is {
		err := t.Talks()
		if err == nil {
			return nil
		}
		why = err.Error()
	}
	return hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "Chat not possible", Subject: &at, Detail: "The chat does not begin: " + why + ".",
	}}
}
