package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/prose"
)

// explainCall says why a call was decided as it was, from its records alone.
func (c auditVerb) explainCall(ctx context.Context, id string) error {
	merged, _, err := c.openAudit(time.Time{})
	if err != nil {
		return err
	}
	defer merged.Close()
	var found []*audit.Entry
	for {
		e, err := merged.Next()
		if err != nil {
			return fmt.Errorf("reading what was recorded: %w", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if e == nil {
			break
		}
		if strings.HasPrefix(e.ID, id) {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return fail(exitNoSuch, "no record of call %s", id).withHint(`"pfar audit" shows them`)
	}
	for _, e := range found {
		if e.ID != found[0].ID {
			return fail(exitNoSuch, "ambiguous call ID: matches %s and %s", found[0].ID, e.ID)
		}
	}
	if c.json() {
		records := make([]audit.Record, len(found))
		for i, e := range found {
			records[i] = e.Record
		}
		return c.printJSON(records)
	}
	return writeStory(c.stdout, found)
}

// writeStory writes the records of one call in words, each of them on a line of its own whatever is in it: names are a
// stranger's too, and none of them may draw a line that looks like one of these.
func writeStory(w io.Writer, list []*audit.Entry) error {
	for _, r := range prose.Story(list, stamp) {
		if _, err := fmt.Fprintf(w, "%-11s %s\n", escape(r.Name, oneLine), escape(r.Text, oneLine)); err != nil {
			return err
		}
	}
	return nil
}
