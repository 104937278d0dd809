package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/prose"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/journal/entries"
)

const auditVerifyHelp = `Read all records and check that none was changed, removed, inserted or moved. Each record has the digest of
the one before. About once a minute, the gateway and pfard write the digest of their last record to the journal, or
to their logs without systemd. If you may read the journal, the command compares these digests too. So it finds out
whether the last records are missing, or whether an older copy has replaced the records. After a new installation,
use --since to skip the digests of the earlier one.

If something is wrong, the exit code is 1, and each line says where and what. The command also names calls whose
record was never closed. Such a call is no error: it is still in flight, or the gateway was killed.`

func (c auditVerb) auditVerifyCommand() *cobra.Command {
	var since instant
	since.now = c.now
	cmd := c.outputFlag(&cobra.Command{
		Use:   "verify",
		Short: "Check that no record was changed",
		Long:  auditVerifyHelp,
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.auditVerify(cmd.Context(), since.Time) },
	})
	cmd.Flags().Var(&since, "since", "compare with digests since TIME")
	return cmd
}

func (c auditVerb) auditVerify(ctx context.Context, since time.Time) error {
	dir, _, none := c.auditChains()
	if none != nil && !errors.Is(none, errNoAudit) {
		return none
	}
	anchors, note := c.anchors(ctx, since)
	if none != nil && len(anchors) == 0 { // else all of it is gone
		return none
	}
	var chains []auditChain
	for _, name := range chainsOf(dir, anchors) {
		chain, err := openChain(dir, name)
		if err != nil {
			return err
		}
		defer chain.close()
		chains = append(chains, chain)
	}
	var told []audit.Anchor // pfard says where all chains begin, its own too, before it deletes what was before
	for _, chain := range chains {
		if chain.name == "pfard" {
			own, err := chain.verify(ctx, nil, nil)
			if err != nil {
				return err
			}
			told = own.Told
		}
	}
	var list []prose.Verified
	broken := false
	for _, chain := range chains {
		r, err := chain.verify(ctx, told, anchors)
		if err != nil {
			return err
		}
		v := prose.Verified{Report: r, Journal: note}
		if n := len(chain.files); n > 0 {
			sealed, err := trail.Sealed(chain.files[n-1].Name())
			v.Unsealed = !sealed || err != nil
		}
		list = append(list, v)
		broken = broken || v.Broken()
	}
	var err error
	if c.json() {
		err = c.printJSON(list)
	} else {
		c.printVerified(list)
	}
	if err == nil && broken {
		return fail(exitFailed, prose.Changed)
	}
	return err
}

// chainsOf are the chains that have files, and those that the journal knows of.
func chainsOf(dir trail.Dir, anchors []audit.Anchor) []string {
	chains, _ := dir.Chains()
	for _, a := range anchors {
		if !slices.Contains(chains, a.Chain) {
			chains = append(chains, a.Chain)
		}
	}
	return chains
}

// auditChain is a chain with its files, oldest first. Those that are deleted while it is verified are read
// nevertheless.
type auditChain struct {
	name  string
	files []*os.File
}

func openChain(dir trail.Dir, name string) (auditChain, error) {
	const tries = 5 // the oldest may be deleted just now
	for try := 1; ; try++ {
		chain := auditChain{name: name}
		paths, err := dir.Files(name)
		if len(paths) == 0 && errors.Is(err, fs.ErrNotExist) {
			return chain, nil
		}
		for _, path := range paths {
			var f *os.File
			if f, err = os.Open(path); err != nil {
				break
			}
			chain.files = append(chain.files, f)
		}
		if err == nil {
			return chain, nil
		}
		chain.close()
		if !errors.Is(err, fs.ErrNotExist) || try == tries {
			return auditChain{}, err
		}
	}
}

func (a auditChain) close() {
	for _, f := range a.files {
		f.Close()
	}
}

func (a auditChain) verify(ctx context.Context, bases, anchors []audit.Anchor) (audit.Report, error) {
	var files []audit.File
	for _, f := range a.files {
		files = append(files, audit.File{Name: f.Name(), Reader: io.NewSectionReader(f, 0, math.MaxInt64)})
	}
	defer context.AfterFunc(ctx, a.close)() // it may be long
	report, err := audit.Verify(a.name, files, bases, anchors)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return report, err
}

func (c auditVerb) printVerified(list []prose.Verified) {
	for _, v := range list {
		colour := green
		if v.Broken() {
			colour = red
		}
		word := c.paint(c.stdout, colour, fmt.Sprintf("%-6s", v.Word()))
		fmt.Fprintf(c.stdout, "%s  %s\n", word, escape(v.Head(), oneLine))
		for _, line := range v.Lines() {
			fmt.Fprintf(c.stdout, "  %s\n", escape(line, oneLine))
		}
	}
	if note := prose.Uncompared(list); note != "" {
		fmt.Fprintln(c.stdout, escape(note, oneLine))
	}
}

// anchors are what the writers told of their chains, and why there are none.
func (c auditVerb) anchors(ctx context.Context, since time.Time) (list []audit.Anchor, note string) {
	var err error
	if report, rerr := c.report(ctx); c.uid != 0 && c.auditDir() == systemAudit || c.inJournal(report, rerr, c.dirs.Log(units.GatewayLog)) {
		list, err = c.journalAnchors(ctx, since)
	} else {
		list, err = fileAnchors(c.dirs.Log(units.GatewayLog), c.dirs.Log(units.AnchorsLog))
	}
	switch {
	case err != nil:
		return list, "nothing says whether the end was cut: " + err.Error()
	case len(list) == 0:
		return nil, "nothing says whether the end was cut: the journal was told of none of it, or you may not read it"
	}
	return list, ""
}

// journalAnchors asks the journal, which takes no process's word for its unit.
func (c auditVerb) journalAnchors(ctx context.Context, since time.Time) ([]audit.Anchor, error) {
	args := []string{"--output=json", "--output-fields=PFAR_CHAIN,PFAR_SEQ,PFAR_HASH", "--quiet", "--no-pager", "--lines=all"}
	if !since.IsZero() {
		args = append(args, "--since=@"+strconv.FormatInt(since.Unix(), 10))
	}
	unit := "_SYSTEMD_UNIT="
	if c.uid != 0 && c.auditDir() != systemAudit {
		unit = "_SYSTEMD_USER_UNIT="
		args = append(args, "--user")
	}
	args = append(args, "PFAR_CHAIN=gateway", unit+"pfar-gateway.service", "+", "PFAR_CHAIN=pfard", unit+"pfard.service")
	var list []audit.Anchor
	err := entries.Read(ctx, c.stderr, args, func(decoder *json.Decoder) error {
		var e struct {
			Chain any `json:"PFAR_CHAIN"`
			Seq   any `json:"PFAR_SEQ"`
			Hash  any `json:"PFAR_HASH"`
		}
		err := decoder.Decode(&e)
		if seq, malformed := strconv.ParseUint(entries.Text(e.Seq), 10, 64); err == nil && malformed == nil {
			list = append(list, audit.Anchor{Chain: entries.Text(e.Chain), Seq: seq, Hash: entries.Text(e.Hash)})
		}
		return err
	})
	return list, err
}

// anchorEntry is what the gateway and pfard write to logs that are files.
var anchorEntry = regexp.MustCompile(` msg=audit chain=(\w+) seq=(\d+) hash=([0-9a-f]{64})$`)

// fileAnchors reads logs that are files, and those before them.
func fileAnchors(paths ...string) (list []audit.Anchor, err error) {
	var logs []string
	for _, path := range paths {
		logs = append(logs, path, path+".1")
	}
	for _, log := range logs {
		f, err := os.Open(log)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, maxLogLine)
		for lines.Scan() {
			if m := anchorEntry.FindStringSubmatch(lines.Text()); m != nil {
				seq, _ := strconv.ParseUint(m[2], 10, 64)
				list = append(list, audit.Anchor{Chain: m[1], Seq: seq, Hash: m[3]})
			}
		}
		f.Close()
		if err := lines.Err(); err != nil {
			return list, fmt.Errorf("reading %q: %w", log, err)
		}
	}
	return list, nil
}
