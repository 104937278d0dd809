package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/drift"
)

// preview finds out what another version of a server's package changes, or why that cannot be known. It lists both
// versions without network and secrets, because the definitions may depend on them.
func (c upgradeVerb) preview(ctx context.Context, d declaredPackage, to source.Package, out *upgraded) error {
	name := d.server.Name
	next, err := c.listed(ctx, name, d.with(to))
	if err != nil {
		out.Unlisted = fmt.Sprintf("what %s offers is not known before it runs: %v", to, err)
		return ctx.Err()
	}
	now, err := c.listed(ctx, name, d.text)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if now = trialVerb(c).offers(ctx, name); now == nil {
			out.Unlisted = fmt.Sprintf("what %s offers is not known now: %v", d.pkg, err)
			return nil
		}
	}
	out.Changes = held(drift.Compare(now, next))
	return nil
}

// listed returns the definitions of a server with a text as its declaration.
func (c upgradeVerb) listed(ctx context.Context, name string, text []byte) ([]drift.Definition, error) {
	found, err := c.control().List(ctx, name, text)
	if err != nil {
		return nil, err
	}
	why := found.Failed
	if why == "" {
		l, err := drift.ReadListing(found.Found)
		if err == nil && l.Failed == "" {
			return l.Definitions, nil
		}
		if why = l.Failed; err != nil {
			why = "its listing cannot be read: " + err.Error()
		}
	}
	if found.Refused != "" {
		why += "; it has no network meanwhile: " + found.Refused
	}
	return nil, errors.New(why)
}

// held marks the tools and prompts that no client sees until the owner accepts them: new and changed ones.
func held(changes []drift.Change) []drift.Change {
	for i, c := range changes {
		changes[i].Held = c.What != drift.Gone && (c.Kind == drift.Tool || c.Kind == drift.Prompt)
	}
	return changes
}

// showChange says what is about to be done.
func (c upgradeVerb) showChange(w io.Writer, out upgraded) {
	rows := [][]cell{
		{{"package", bold}, {out.From, ""}, {"becomes " + out.To, ""}},
		{{"declaration", bold}, {out.File, ""}, {"is written", ""}},
		{{"changed tools", bold}, {"", ""}, {"are held back until you accept them (pfar pins " + out.Server + ")", ""}},
	}
	if len(out.Secrets) > 0 {
		rows = append(rows, []cell{{"secrets", bold}, {strings.Join(out.Secrets, ", "), ""}, {"are given to it as well", ""}})
	}
	c.table(w, rows)
	fmt.Fprintln(w)
	switch {
	case out.Unlisted != "":
		c.table(w, [][]cell{{{out.Unlisted, ""}}})
	case len(out.Changes) == 0:
		fmt.Fprintln(w, "It offers what it did.")
	}
	trialVerb(c).printChanges(w, out.Changes)
}

// showPreview is what --dry-run says.
func (c upgradeVerb) showPreview(out upgraded) error {
	if c.json() {
		return c.printJSON(out)
	}
	if out.From == out.To {
		_, err := fmt.Fprintf(c.stdout, "%s: %s already\n", out.Server, escape(out.To, oneLine))
		return err
	}
	c.showChange(c.stdout, out)
	_, err := fmt.Fprintln(c.stdout, "Nothing was switched.")
	return err
}
